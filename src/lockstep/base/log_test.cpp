#include "lockstep/base/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

class LogTest : public ::testing::Test {
 protected:
  [[nodiscard]] LogOptions options() const { return {.rank = 3, .descriptor = file_.number()}; }

  [[nodiscard]] std::string written() const {
    std::string text(static_cast<std::size_t>(::lseek(file_.number(), 0, SEEK_END)), '\0');
    EXPECT_EQ(::pread(file_.number(), text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
    return text;
  }

  FileDescriptor file_{::memfd_create("log", MFD_CLOEXEC)};
};

TEST_F(LogTest, ALineStartsWithTheRankAndNamesItsLevel) {
  const Log log(options());
  log.info("joined 4 ranks");
  log.warning("rank 2 is slow");
  log.error("rank 2 is gone");
  EXPECT_EQ(written(),
            "rank 3 | joined 4 ranks\n"
            "rank 3 | warning: rank 2 is slow\n"
            "rank 3 | error: rank 2 is gone\n");
}

TEST_F(LogTest, WithoutARankALineStartsWithLockstep) {
  Log({.descriptor = file_.number()}).info("starting");
  EXPECT_EQ(written(), "lockstep | starting\n");
}

TEST_F(LogTest, MessagesBelowTheLevelAreDropped) {
  auto quiet = options();
  quiet.level = LogLevel::warning;
  const Log log(quiet);
  log.debug("no");
  log.info("no");
  log.warning("yes");
  EXPECT_EQ(written(), "rank 3 | warning: yes\n");
}

TEST_F(LogTest, AMessageStaysOneLine) {
  Log(options()).info("first\nsecond");
  EXPECT_EQ(written(), "rank 3 | first\\nsecond\n");
}

TEST_F(LogTest, LinesOfManyThreadsDoNotInterleave) {
  const FileDescriptor appending =
      FileDescriptor::open(fmt::format("/proc/self/fd/{}", file_.number()), O_WRONLY | O_APPEND);
  const Log log({.rank = 0, .descriptor = appending.number()});
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 200; ++i) log.info(fmt::format("thread {} line {}", t, i));
      });
    }
  }
  std::istringstream lines(written());
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) seen.insert(line);
  EXPECT_EQ(seen.size(), 800u);
  EXPECT_TRUE(seen.contains("rank 0 | thread 3 line 199"));
}

TEST(Log, AFullDiskDoesNotEndTheRun) {
  const auto full = FileDescriptor::open("/dev/full", O_WRONLY);
  EXPECT_NO_THROW(Log({.descriptor = full.number()}).error("nobody reads this"));
}

}  // namespace
}  // namespace lockstep
