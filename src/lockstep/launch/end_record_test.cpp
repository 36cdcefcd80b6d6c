#include "lockstep/launch/end_record.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

std::vector<RankOutcome> two_ranks() {
  RankOutcome first{.rank = 0, .host = "h", .pid = 1, .status = ExitStatus::exited(1)};
  RankOutcome second{.rank = 1, .host = "h", .pid = 2, .status = ExitStatus::signaled(SIGABRT)};
  first.ended = RankOutcome::Time(std::chrono::milliseconds(2'500));
  second.ended = RankOutcome::Time(std::chrono::milliseconds(1'500));
  second.last_lines = {"bad byte \xff"};
  return {first, second};
}

TEST(EndRecord, CarriesCauseCulpritRawStatusCodesTimesAndRestarts) {
  const auto text = end_record(
      two_ranks(),
      {.cause = RunCause::rank_failed, .exit_code = 134, .restarts = 2, .max_restarts = 3});
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["format"], "lockstep-end");
  EXPECT_EQ(json["cause"], "rank_failed");
  EXPECT_EQ(json["exit_code"], 134);
  EXPECT_EQ(json["restarts"], 2);
  EXPECT_EQ(json["culprit"]["rank"], 1);
  EXPECT_EQ(json["culprit"]["raw_status"], SIGABRT);
  EXPECT_EQ(json["culprit"]["signal"], "SIGABRT");
  EXPECT_EQ(json["culprit"]["exit_code"], nullptr);
  EXPECT_EQ(json["culprit"]["ended"], "1970-01-01T00:00:01.500Z");
  EXPECT_EQ(json["culprit"]["last_lines"][0], "bad byte \xef\xbf\xbd");
  EXPECT_EQ(json["ranks"][0]["exit_code"], 1);
}

TEST(EndRecord, AFinishedRunHasNoCulprit) {
  const auto json = nlohmann::json::parse(end_record({}, {}));
  EXPECT_EQ(json["culprit"], nullptr);
  EXPECT_EQ(json["cause"], "finished");
}

}  // namespace
}  // namespace lockstep
