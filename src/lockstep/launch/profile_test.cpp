#include "lockstep/launch/profile.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ns;

// What a world of one process writes to its log when its profile ends.
std::string last_words(const HostClock& clock) {
  const auto path = ::testing::TempDir() + "/lockstep_profile_" + std::to_string(::getpid());
  const FileDescriptor paper(::memfd_create("log", MFD_CLOEXEC));
  {
    const Profile profile(World::alone(), {.request = {.window = {.first = 1, .last = 2}},
                                           .path = path,
                                           .clock = clock,
                                           .log = Log({.descriptor = paper.number()})});
  }
  EXPECT_TRUE(std::filesystem::remove(path)) << "the profile was not written";
  std::string text(4096, '\0');
  const auto count = ::pread(paper.number(), text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

TEST(Profile, StatesHowWellTheClocksOfTheHostsAgree) {
  const auto said = last_words({.offset = 5'000'000ns, .error = 12'340ns});
  EXPECT_NE(said.find("clocks of hosts agree within 12.3 us"), std::string::npos) << said;
}

TEST(Profile, OfOneHostStatesThatThereIsOneClock) {
  const auto said = last_words({});
  EXPECT_NE(said.find("all ranks have one clock"), std::string::npos) << said;
}

}  // namespace
}  // namespace lockstep
