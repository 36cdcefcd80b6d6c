#include "cli/train/run_place.h"

#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

const FolderFacts kUnfinished{.exists = true, .is_run = true};
const FolderFacts kFinished{.exists = true, .is_run = true, .done_at = "300st"};
const FolderFacts kOther{.exists = true};

RunPlace place(const PlaceRequest& request, const std::map<std::string, FolderFacts>& disk) {
  return choose_place(request, [&](const std::string& folder) {
    const auto found = disk.find(folder);
    return found == disk.end() ? FolderFacts{} : found->second;
  });
}

TEST(RunPlace, ANewRunIsBegunWhereThereIsNone) {
  EXPECT_EQ(place({.folder = "r"}, {}).start, Start::fresh);
}

TEST(RunPlace, AnUnfinishedRunGoesOn) {
  EXPECT_EQ(place({.folder = "r"}, {{"r", kUnfinished}}).start, Start::go_on);
}

TEST(RunPlace, AFinishedRunIsOverUnlessMoreIsAskedFor) {
  EXPECT_EQ(place({.folder = "r"}, {{"r", kFinished}}).start, Start::finished);
  EXPECT_EQ(place({.folder = "r", .length = "300st"}, {{"r", kFinished}}).start, Start::finished);
  EXPECT_EQ(place({.folder = "r", .length = "600st"}, {{"r", kFinished}}).start, Start::go_on);
}

TEST(RunPlace, FreshTakesTheNextFreeNameAndNeverWhatIsThere) {
  const std::map<std::string, FolderFacts> disk{
      {"r", kFinished}, {"r-2", kUnfinished}, {"r-3", kOther}};
  const auto chosen = place({.folder = "r", .fresh = true}, disk);
  EXPECT_EQ(chosen.folder, "r-4");
  EXPECT_EQ(chosen.start, Start::fresh);
  EXPECT_EQ(place({.folder = "q", .fresh = true}, disk).folder, "q");
}

TEST(RunPlace, AFolderThatIsSomethingElseIsRefused) {
  EXPECT_THROW((void)place({.folder = "r"}, {{"r", kOther}}), UsageError);
}

TEST(RunPlace, WhoMustResumeNeedsARun) {
  EXPECT_THROW((void)place({.folder = "r", .must_resume = true}, {}), UsageError);
  EXPECT_EQ(place({.folder = "r", .must_resume = true}, {{"r", kUnfinished}}).start, Start::go_on);
}

}  // namespace
}  // namespace lockstep::cli
