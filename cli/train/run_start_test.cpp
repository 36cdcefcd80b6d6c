#include "cli/train/run_start.h"

#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

const FolderFacts kUnfinished{.exists = true, .is_run = true};
const FolderFacts kFinished{.exists = true, .is_run = true, .done_at = "300st"};
const FolderFacts kOther{.exists = true};

RunStart chosen(const StartRequest& request, const std::map<std::string, FolderFacts>& disk) {
  return choose_start(request, [&](const std::string& folder) {
    const auto found = disk.find(folder);
    return found == disk.end() ? FolderFacts{} : found->second;
  });
}

TEST(RunStart, ANewRunStartsWhereThereIsNone) {
  EXPECT_EQ(chosen({.folder = "r"}, {}).kind, StartKind::fresh);
}

TEST(RunStart, AnUnfinishedRunResumes) {
  EXPECT_EQ(chosen({.folder = "r"}, {{"r", kUnfinished}}).kind, StartKind::resume);
}

TEST(RunStart, AFinishedRunResumesOnlyWithAnotherLength) {
  EXPECT_EQ(chosen({.folder = "r"}, {{"r", kFinished}}).kind, StartKind::finished);
  EXPECT_EQ(chosen({.folder = "r", .length = "300st"}, {{"r", kFinished}}).kind,
            StartKind::finished);
  EXPECT_EQ(chosen({.folder = "r", .length = "600st"}, {{"r", kFinished}}).kind, StartKind::resume);
}

TEST(RunStart, FreshTakesTheNextFreeNameAndNeverAnExistingFolder) {
  const std::map<std::string, FolderFacts> disk{
      {"r", kFinished}, {"r-2", kUnfinished}, {"r-3", kOther}};
  const auto start = chosen({.folder = "r", .fresh = true}, disk);
  EXPECT_EQ(start.folder, "r-4");
  EXPECT_EQ(start.kind, StartKind::fresh);
  EXPECT_EQ(chosen({.folder = "q", .fresh = true}, disk).folder, "q");
}

TEST(RunStart, AFolderThatIsNotARunIsRefused) {
  EXPECT_THROW((void)chosen({.folder = "r"}, {{"r", kOther}}), UsageError);
}

TEST(RunStart, ResumeRequiredNeedsARun) {
  EXPECT_THROW((void)chosen({.folder = "r", .must_resume = true}, {}), UsageError);
  EXPECT_EQ(chosen({.folder = "r", .must_resume = true}, {{"r", kUnfinished}}).kind,
            StartKind::resume);
}

}  // namespace
}  // namespace lockstep::cli
