#include "cli/top/view.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/top/find_run.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/fabric/call.h"

namespace lockstep::cli {
namespace {

using namespace std::chrono_literals;

RankState rank_in(int rank, std::int64_t step, StepPart part) {
  return {.rank = rank,
          .host = "node0",
          .standing = RankStanding::running,
          .pid = 100 + rank,
          .memory_bytes = 812'000'000,
          .step = step,
          .part = part};
}

RankCall call_number(std::uint64_t number, bool has_ended, std::chrono::nanoseconds age) {
  return {.kind = static_cast<int>(Collective::all_reduce),
          .number = number,
          .name = "gradients 4",
          .has_ended = has_ended,
          .age = age};
}

RunState two_ranks() {
  RunState run{.command = "./train", .ranks = {}};
  run.ranks.push_back(rank_in(0, 812, StepPart::exposed));
  run.ranks.push_back(rank_in(1, 811, StepPart::forward));
  run.ranks[0].bucket = 4;
  run.ranks[0].call = call_number(42, false, 12s);
  run.ranks[1].call = call_number(41, true, 13s);
  return run;
}

std::string line_of(const std::string& text, const std::string& part) {
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    const auto line = text.substr(begin, end - begin);
    if (line.find(part) != std::string::npos) return line;
    begin = end + 1;
  }
  return "";
}

TEST(TopText, ALineSaysWhatARankDoesAndForHowLong) {
  auto run = two_ranks();
  run.ranks[0].age = 12s;
  const auto text = top_text(run, {.folder = "runs/a", .columns = 140}, run.started + 62s);
  EXPECT_NE(text.find("runs/a: 2 ranks, running for 0:01:02"), std::string::npos) << text;
  const auto line = line_of(text, "waiting for gradients, bucket 4");
  for (const auto* part :
       {"node0", "running", "812", "12s", "812 MB", "42 all_reduce", "\"gradients 4\""}) {
    EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
  }
}

TEST(TopText, TheRankThatOthersWaitForIsNamed) {
  auto run = two_ranks();
  EXPECT_EQ(awaited_in_words(run), "rank 1 is in call 41; the others wait in call 42");
  run.ranks[0].call->age = 100ms;  // a normal wait
  EXPECT_EQ(awaited_in_words(run), "");
  run.ranks[0].call->age = 12s;
  run.ranks[1].call->has_ended = false;  // it may wait in another group
  EXPECT_EQ(awaited_in_words(run), "");
  run.ranks[1].standing = RankStanding::stopped;
  EXPECT_NE(awaited_in_words(run), "");
  run.ranks[1].call->number = 42;
  EXPECT_EQ(awaited_in_words(run), "");
  run.ranks[1].call.reset();  // it has not joined a group yet
  EXPECT_EQ(awaited_in_words(run), "");
}

TEST(TopText, StoppedFailedAndSlowRanksAreColored) {
  auto run = two_ranks();
  EXPECT_FALSE(is_suspicious(run.ranks[0]));
  run.ranks[0].age = 11s;
  EXPECT_TRUE(is_suspicious(run.ranks[0]));
  run.ranks[1].standing = RankStanding::ended;
  EXPECT_FALSE(is_suspicious(run.ranks[1]));
  run.ranks[1].status = 9;
  EXPECT_TRUE(is_suspicious(run.ranks[1]));
  const auto text = top_text(run, {.color = true}, run.started);
  EXPECT_NE(line_of(text, "SIGKILL").find("\x1b[31m"), std::string::npos) << text;
  EXPECT_EQ(top_text(run, {}, run.started).find('\x1b'), std::string::npos);
}

TEST(TopText, InASmallTerminalRanksThatNeedALookAreKept) {
  RunState run;
  for (int i = 0; i < 64; ++i) run.ranks.push_back(rank_in(i, 5, StepPart::forward));
  run.ranks[57].standing = RankStanding::stopped;
  const auto text = top_text(run, {.columns = 80, .rows = 24}, run.started);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 24);
  EXPECT_NE(line_of(text, "stopped").find("   57"), std::string::npos) << text;
  EXPECT_NE(text.find("and 45 more ranks"), std::string::npos) << text;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    EXPECT_LE(end - begin, 80u);
    begin = end + 1;
  }
}

TEST(TopText, RatesComeFromTheStatesThatWereShown) {
  StepRates rates;
  auto run = two_ranks();
  const auto now = std::chrono::steady_clock::now();
  rates.add(run, now);
  EXPECT_FALSE(rates.rates()[0]);
  run.ranks[0].step = 822;
  rates.add(run, now + 4s);
  EXPECT_EQ(rates.rates()[0], 2.5);
  EXPECT_EQ(rates.rates()[1], 0);
  run.round = 1;  // a restart repeats steps
  run.ranks[0].step = 3;
  rates.add(run, now + 5s);
  EXPECT_FALSE(rates.rates()[0]);
}

TEST(TopJson, HasEveryRankWithItsCall) {
  const auto json = nlohmann::json::parse(top_json(two_ranks(), "runs/a"));
  EXPECT_EQ(json.at("run"), "runs/a");
  ASSERT_EQ(json.at("ranks").size(), 2u);
  const auto& rank = json.at("ranks")[0];
  EXPECT_EQ(rank.at("step"), 812);
  EXPECT_EQ(rank.at("part"), "exposed");
  EXPECT_EQ(rank.at("bucket"), 4);
  EXPECT_EQ(rank.at("call").at("kind"), "all_reduce");
  EXPECT_EQ(rank.at("call").at("ended"), false);
  EXPECT_TRUE(json.at("ranks")[1].at("bucket").is_null());
}

TEST(TopFolder, ARunOfTheTrainerIsItsNewestLaunch) {
  namespace fs = std::filesystem;
  std::string name = fs::temp_directory_path() / "lockstep-top-XXXXXX";
  const fs::path folder = ::mkdtemp(name.data());
  EXPECT_THROW((void)find_pages_folder(folder), UsageError);
  for (const auto* launch : {"1", "2", "10"}) {
    fs::create_directories(folder / "launches" / launch);
    std::ofstream(folder / "launches" / launch / "pages") << "x";
  }
  for (int i = 3; i < 10; ++i) fs::create_directories(folder / "launches" / std::to_string(i));
  EXPECT_EQ(find_pages_folder(folder), folder / "launches" / "10");
  fs::create_symlink("/proc/0/fd/0", folder / "pages");  // a launcher that was killed
  EXPECT_EQ(find_pages_folder(folder), folder);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::cli
