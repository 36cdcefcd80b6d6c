#include "lockstep/launch/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class RunFolderTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }

  const std::string root_ =
      std::filesystem::temp_directory_path() / ("lockstep-runs-" + std::to_string(::getpid()));
};

TEST_F(RunFolderTest, IsCreatedWithItsParentsAndLogs) {
  const auto folder = RunFolder::create(root_ + "/a/b/");
  EXPECT_EQ(folder.path(), root_ + "/a/b");
  EXPECT_TRUE(std::filesystem::is_directory(folder.logs_path()));
}

TEST_F(RunFolderTest, IsNeverUsedTwice) {
  (void)RunFolder::create(root_ + "/a");
  try {
    (void)RunFolder::create(root_ + "/a");
    FAIL() << "the folder was reused";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(root_ + "/a already exists"), std::string::npos);
  }
}

TEST_F(RunFolderTest, AParentThatIsAFileIsNamed) {
  std::ofstream(root_).put('x');
  EXPECT_THROW((void)RunFolder::create(root_ + "/a/b"), SystemError);
}

TEST(RunName, ContainsProgramTimeAndToken) {
  const std::chrono::system_clock::time_point now{std::chrono::seconds(1'794'767'551)};
  EXPECT_EQ(run_name("./build/train", now, "4f09c2a1"), "train-20261115T183231Z-4f09c2a1");
  EXPECT_EQ(run_name("/a/my prog", now, "t"), "my_prog-20261115T183231Z-t");
  EXPECT_EQ(run_name("..", now, "t").substr(0, 6), "run..-");
}

TEST(RunName, TokensDiffer) {
  EXPECT_EQ(random_token().size(), 8u);
  EXPECT_NE(random_token(), random_token());
}

TEST(LogPath, DiffersBetweenRounds) {
  EXPECT_EQ(log_path("logs", 7, 0), "logs/rank-007.log");
  EXPECT_EQ(log_path("logs", 1234, 2), "logs/rank-1234.restart-2.log");
}

}  // namespace
}  // namespace lockstep
