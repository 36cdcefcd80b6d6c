#include "lockstep/trace/profile_file.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/trace/profile_request.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Bucket 0 of step 7 on a rank that entered at `entered` and saw all ranks at `all_in`.
RankProfile rank_with(int rank, std::int64_t entered, std::int64_t all_in, std::int64_t done) {
  RankProfile result{.rank = rank, .host = "a", .names = {"", "aten::mm"}};
  if (all_in > entered) {
    result.events.push_back({.begin_ns = entered,
                             .end_ns = all_in,
                             .step = 7,
                             .bytes = 64,
                             .kind = EventKind::bucket_wait,
                             .lane = Lane::bucket});
  }
  result.events.push_back({.begin_ns = all_in,
                           .end_ns = done,
                           .step = 7,
                           .bytes = 64,
                           .kind = EventKind::bucket_reduce,
                           .lane = Lane::bucket});
  result.events.push_back({.begin_ns = entered,
                           .end_ns = done,
                           .step = 7,
                           .index = 2,
                           .kind = EventKind::op,
                           .lane = Lane::operators,
                           .name = 1});
  result.events.push_back({.begin_ns = entered,
                           .end_ns = entered,
                           .value = 4,
                           .kind = EventKind::counter,
                           .lane = Lane::loader,
                           .name = 1});
  return result;
}

json written(std::span<const RankProfile> ranks) {
  std::ostringstream text;
  write_profile(text, ranks, {.world = 3, .window = {.first = 7, .last = 7}, .missing = {2}});
  return json::parse(text.str());
}

TEST(ProfileFile, HasProcessesLanesAndTimesInMicroseconds) {
  const std::vector ranks{rank_with(0, 5'000, 9'000, 10'000), rank_with(1, 9'000, 9'000, 10'500)};
  const auto profile = written(ranks);
  EXPECT_EQ(profile["otherData"]["world"], 3);
  EXPECT_EQ(profile["otherData"]["missing_ranks"], json::array({2}));
  std::set<std::string> lanes;
  int reductions = 0;
  for (const auto& event : profile["traceEvents"]) {
    if (event["name"] == "thread_name") lanes.insert(event["args"]["name"]);
    if (event["name"] == "reduce" && event["pid"] == 0) {
      ++reductions;
      EXPECT_DOUBLE_EQ(event["ts"], 4);       // the first event begins at 0
      EXPECT_DOUBLE_EQ(event["dur"], 0.999);  // one nanosecond less: spans must not touch
      EXPECT_EQ(event["args"]["bytes"], 64);
      EXPECT_DOUBLE_EQ(event["args"]["GB/s"], 0.064);
    }
  }
  EXPECT_EQ(reductions, 1);
  EXPECT_EQ(lanes, (std::set<std::string>{"bucket 0", "operators 2"}));
}

TEST(ProfileFile, AnArrowLeadsFromTheLastRankToTheOneThatWaited) {
  const std::vector ranks{rank_with(0, 5'000, 9'500, 10'000), rank_with(1, 9'000, 9'000, 10'500)};
  json from;
  json to;
  const auto profile = written(ranks);
  for (const auto& event : profile["traceEvents"]) {
    if (event["ph"] == "s") from = event;
    if (event["ph"] == "f") to = event;
  }
  EXPECT_EQ(from["pid"], 1);
  EXPECT_DOUBLE_EQ(from["ts"], 4);
  EXPECT_EQ(to["pid"], 0);
  EXPECT_DOUBLE_EQ(to["ts"], 4.5);
  EXPECT_EQ(from["id"], to["id"]);
}

// Oracle: on one line no span overlaps another one partly, and each stays within 100 ns of itself.
TEST(ProfileFile, SpansOfALineFollowEachOtherOrAreNested) {
  RankProfile rank{.rank = 0, .host = "a"};
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    rank.events.push_back(
        {.begin_ns = begin, .end_ns = end, .kind = EventKind::step, .lane = Lane::step});
  };
  add(20'000, 30'000);
  add(0, 10'050);  // ends after its successor begins
  add(10'000, 20'000);
  add(20'100, 30'040);  // a child that ends after its parent
  std::vector<std::pair<double, double>> spans;
  const auto profile = written(std::vector{rank});
  for (const auto& event : profile["traceEvents"]) {
    if (event["ph"] == "X")
      spans.emplace_back(event["ts"], event["ts"].get<double>() + event["dur"].get<double>());
  }
  ASSERT_EQ(spans.size(), 4U);
  for (const auto& [begin, end] : spans) {
    for (const auto& [other_begin, other_end] : spans) {
      const bool is_apart = end <= other_begin || other_end <= begin;
      const bool is_inside =
          (begin <= other_begin && other_end <= end) || (other_begin <= begin && end <= other_end);
      EXPECT_TRUE(is_apart || is_inside) << begin << " " << end << " " << other_begin;
    }
  }
}

TEST(ProfileFile, TravelsAsBytes) {
  const auto profile = rank_with(3, 1, 2, 3);
  const auto bytes = to_bytes(profile);
  EXPECT_EQ(profile_from_bytes(bytes), profile);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    EXPECT_THROW((void)profile_from_bytes(std::string_view(bytes).substr(0, cut)), UsageError);
  }
  EXPECT_THROW((void)profile_from_bytes(bytes + "x"), UsageError);
}

TEST(ProfileFile, EventsOfATraceGetTheClockOfRankZero) {
  Trace trace;
  trace.begin_step(1);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const auto at = ticks();
  trace.record({.begin = at, .end = at, .name = "one", .kind = EventKind::span});
  trace.record({.begin = at, .end = at, .name = trace.intern("one"), .kind = EventKind::span});
  RankProfile profile;
  profile.add(trace.drain(), 1'000'000'000);
  ASSERT_EQ(profile.events.size(), 2U);
  EXPECT_NEAR(static_cast<double>(profile.events[0].begin_ns - now), 1e9, 1e6);
  EXPECT_EQ(profile.names, (std::vector<std::string>{"", "one"}));
  EXPECT_EQ(profile.events[1].name, 1);
}

TEST(ProfileRequest, IsAWindowOfSteps) {
  const auto plain = parse_profile_request("--profile", "10:20");
  EXPECT_EQ(plain.window.first, 10);
  EXPECT_EQ(plain.window.last, 20);
  EXPECT_FALSE(plain.operators);
  EXPECT_TRUE(parse_profile_request("--profile", "1:1,operators").operators);
  for (const auto* text : {"", "10", "0:3", "5:4", "a:b", "1:2:3", "1:2,ops", "1:2 "}) {
    EXPECT_THROW((void)parse_profile_request("--profile", text), UsageError) << text;
  }
}

}  // namespace
}  // namespace lockstep
