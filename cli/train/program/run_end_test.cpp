#include "cli/train/program/run_end.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace lockstep::cli {
namespace {

class RunEndTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_ = ::testing::TempDir() + "run_end";
  SavedConfig saved_{.resolved = resolve(ModelKind::mlp, {{"steps", "30", ""}})};
  SummaryFacts facts_{.folder = folder_, .why = end_reason(30, false, 0), .steps = 30};
};

TEST_F(RunEndTest, TheReasonStatesWhetherPatienceEndedTheRun) {
  EXPECT_EQ(end_reason(30, false, 2), "Done: 30 steps.");
  EXPECT_EQ(end_reason(30, true, 2), "Stopped at step 30: no new best loss in 2 evaluations.");
}

TEST_F(RunEndTest, WritesTheSummaryAndWhatTheNextStartReads) {
  const auto summary = write_end(saved_, facts_);
  EXPECT_EQ(text_of("summary.txt"), summary);
  EXPECT_NE(summary.find("Done: 30 steps."), std::string::npos);
  const auto finished = try_read_finished(folder_);
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->length, "30st");
  EXPECT_EQ(finished->steps, 30);
  EXPECT_EQ(finished->why, "Done: 30 steps.");
  EXPECT_FALSE(finished->gave_up);
}

TEST_F(RunEndTest, ASecondEndKeepsTheSummaryAndStatesHowToContinue) {
  std::ofstream(folder_ + "/summary.txt") << "unchanged";
  EXPECT_TRUE(write_end_again(saved_, facts_).ends_with("give a larger --steps."));
  facts_.gave_up = true;
  EXPECT_TRUE(write_end_again(saved_, facts_).ends_with("give a larger --steps and --patience."));
  EXPECT_EQ(text_of("summary.txt"), "unchanged");
  EXPECT_TRUE(try_read_finished(folder_)->gave_up);
}

}  // namespace
}  // namespace lockstep::cli
