#include "lockstep/machine/processor_name.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ProcessorName, IsTheModelNameOfAnX86Processor) {
  EXPECT_EQ(processor_name_in("processor\t: 0\nmodel\t\t: 143\n"
                              "model name\t: Intel(R) Xeon(R) Platinum 8488C\n\n"
                              "processor\t: 1\nmodel name\t: Another\n"),
            "Intel(R) Xeon(R) Platinum 8488C");
}

TEST(ProcessorName, IsThatOfTheBoardIfTheKernelTellsIt) {
  EXPECT_EQ(processor_name_in("CPU implementer\t: 0x41\nCPU part\t: 0xd08\n\n"
                              "Hardware\t: BCM2835\nModel\t\t: Raspberry Pi 4 Model B\n"),
            "Raspberry Pi 4 Model B");
}

TEST(ProcessorName, OfArmsServerPartsIsFoundByTheirNumbers) {
  const auto name = [](const std::string& implementer, const std::string& part) {
    return processor_name_in("processor\t: 0\nCPU implementer\t: " + implementer +
                             "\nCPU part\t: " + part + "\n");
  };
  EXPECT_EQ(name("0x41", "0xd0c"), "Neoverse-N1");
  EXPECT_EQ(name("0x41", "0xd40"), "Neoverse-V1");
  EXPECT_EQ(name("0x41", "0xd4f"), "Neoverse-V2");
  EXPECT_EQ(name("0x41", "0xd8e"), "Neoverse-N3");
  EXPECT_EQ(name("0x41", "0xd21"), "part 0xd21");
  EXPECT_EQ(name("0x48", "0xd40"), "part 0xd40") << "another implementer's part";
}

TEST(ProcessorName, IsEmptyIfUnknown) {
  EXPECT_EQ(processor_name_in(""), "");
  EXPECT_EQ(processor_name_in("processor : 0\nmodel name :\nno colon"), "");
}

TEST(ProcessorName, OfThisMachineIsKnown) { EXPECT_NE(processor_name(), ""); }

}  // namespace
}  // namespace lockstep
