#include "lockstep/launch/rank_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/launch/live_line.h"

namespace lockstep {
namespace {

constexpr auto kOut = OutputStream::standard_output;
constexpr auto kErr = OutputStream::standard_error;

class RankLogTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / ("lockstep-log-" + std::to_string(::getpid()));
};

TEST_F(RankLogTest, TheFileHasEveryByte) {
  RankLog log(path_);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    (void)log.append(kOut, all);
    expected += all;
  }
  (void)log.append(kOut, std::string(300'000, 'x'));
  expected += std::string(300'000, 'x');
  (void)log.finish(kOut);
  EXPECT_EQ(content(), expected);
}

TEST_F(RankLogTest, ALineOfOneStreamDoesNotAppearInsideOneOfTheOther) {
  RankLog log(path_);
  (void)log.append(kOut, "loss: ");
  (void)log.append(kErr, "warning\n");
  (void)log.append(kOut, "0.5\n");
  EXPECT_EQ(content(), "warning\nloss: 0.5\n");
}

TEST_F(RankLogTest, AnIncompleteLineIsWrittenByTheNextFlush) {
  RankLog log(path_);
  (void)log.append(kOut, "loading …");
  EXPECT_EQ(content(), "");
  log.flush();
  EXPECT_EQ(content(), "loading …");
}

TEST_F(RankLogTest, TheLast20LinesAreKept) {
  RankLog log(path_);
  for (int i = 1; i <= 30; ++i) (void)log.append(kOut, std::to_string(i) + "\n");
  (void)log.append(kErr, "the end");
  EXPECT_EQ(log.finish(kErr), "the end");
  EXPECT_EQ(log.finish(kOut), std::nullopt);
  const auto last = log.last_lines();
  ASSERT_EQ(last.size(), 20u);
  EXPECT_EQ(last.front(), "12");
  EXPECT_EQ(last.back(), "the end");
}

TEST_F(RankLogTest, TheStackThatLibTorchPrintsDisplacesNoOtherLine) {
  RankLog log(path_);
  std::string text =
      "step 7\nterminate called after throwing an instance of 'c10::Error'\n"
      "  what():  mat1 and mat2 must have the same dtype\n";
  for (int i = 0; i < 50; ++i) text += "frame #" + std::to_string(i) + ": somewhere\n";
  (void)log.append(kErr, text);
  (void)log.append(kErr, "frame #50: in the next piece\n\n");
  const auto last = log.last_lines();
  ASSERT_EQ(last.size(), 5u);
  EXPECT_EQ(last[0], "step 7");
  EXPECT_EQ(last[3], "(51 frames of LibTorch's stack: see the log)");
  EXPECT_EQ(log.uncaught(), "mat1 and mat2 must have the same dtype (c10::Error)");
}

TEST_F(RankLogTest, AnExceptionWithoutAMessageIsNamedByItsType) {
  RankLog log(path_);
  (void)log.append(kErr, "terminate called after throwing an instance of 'int'\n");
  EXPECT_EQ(log.uncaught(), "an exception of type int");
}

TEST_F(RankLogTest, AMissingFolderCostsTheLogAndNotTheRank) {
  RankLog log("/nowhere/rank-000.log");
  ASSERT_TRUE(log.failure());
  EXPECT_EQ(log.append(kOut, "step 1\n"), std::vector<std::string>{"step 1"});
  EXPECT_EQ(log.lost_bytes(), 7u);
}

TEST_F(RankLogTest, LiveLinesAreReturnedAndNotInTheFile) {
  RankLog log(path_);
  const auto live = live_line("step 7");
  const auto lines =
      log.append(kOut, "before\n" + live + live_line("step 8") + "after\n" + live.substr(0, 4));
  EXPECT_EQ(lines, (std::vector<std::string>{"before", "after"}));
  EXPECT_EQ(log.release_live(), "step 8");
  EXPECT_EQ(log.release_live(), std::nullopt);
  (void)log.append(kOut, live.substr(4));
  EXPECT_EQ(log.release_live(), "step 7");
  EXPECT_EQ(content(), "before\nafter\n");
  EXPECT_EQ(log.last_lines(), (std::vector<std::string>{"before", "after"}));
}

TEST_F(RankLogTest, TheLogOfAnotherRunIsNotChanged) {
  std::ofstream(path_) << "old";
  EXPECT_THROW(RankLog{path_}, SystemError);
  EXPECT_EQ(content(), "old");
}

TEST(RankLogOnAFullDisk, CountsTheLostBytesAndContinues) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "this machine has no /dev/full";
  const std::string path =
      std::filesystem::temp_directory_path() / ("lockstep-full-" + std::to_string(::getpid()));
  // O_EXCL refuses a link, so the descriptor of the created file is replaced by the full device.
  RankLog log(path);
  std::filesystem::remove(path);
  const auto file = FileDescriptor::open("/dev/full", 1);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry, error).string();
    if (target.starts_with(path)) ::dup2(file.number(), std::stoi(entry.path().filename()));
  }
  EXPECT_EQ(log.append(kOut, "one\n").size(), 1u);
  ASSERT_TRUE(log.failure());
  EXPECT_EQ(log.failure()->error_number(), ENOSPC);
  (void)log.append(kOut, "two\n");
  EXPECT_EQ(log.lost_bytes(), 8u);
}

}  // namespace
}  // namespace lockstep
