#include "lockstep/machine/hidden_sve.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string cpuinfo(std::string_view features, std::string_view part) {
  return "processor\t: 0\nFeatures\t: " + std::string(features) +
         "\nCPU implementer\t: 0x41\nCPU part\t: " + std::string(part) + "\n";
}

TEST(HiddenSve, IsAProcessorWithSveThatDoesNotListIt) {
  EXPECT_TRUE(hides_sve(cpuinfo("fp asimd dcpop", "0xd40")));
  EXPECT_FALSE(hides_sve(cpuinfo("fp asimd sve dcpop", "0xd40")));
  EXPECT_FALSE(hides_sve(cpuinfo("fp asimd sve", "0xd4f")));
  EXPECT_TRUE(hides_sve(cpuinfo("fp asimd svei8mm", "0xd49")));
}

TEST(HiddenSve, OtherProcessorsHideNothing) {
  EXPECT_FALSE(hides_sve(cpuinfo("fp asimd", "0xd0c")));
  EXPECT_FALSE(hides_sve("processor : 0\nmodel name : an x86\nflags : avx512f\n"));
  EXPECT_FALSE(hides_sve(""));
}

}  // namespace
}  // namespace lockstep
