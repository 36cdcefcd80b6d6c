#include "lockstep/trace/run_analysis.h"

#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/base/json.h"
#include "lockstep/trace/bucket_analysis_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t at(StepPart part) { return static_cast<std::size_t>(part); }

// Four ranks in two intervals. A step takes 100 ms: 2 data, 30 forward, 50 backward, 3 exposed, 10
// update, 5 other. `change` makes one of them different; the others then wait for the last rank, as
// in a real run.
template <typename Change>
AnalysisInput run_with(const Change& change) {
  AnalysisInput input;
  for (const std::int64_t step : {10, 20, 30}) {
    std::vector<RankInterval> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      RankInterval each{.step = step, .rank = rank, .steps = 10};
      each.split_ms = {2, 30, 50, 3, 10, 0, 0, 5};
      change(each);
      ranks.push_back(each);
    }
    // The time until the last all-reduce, without waiting.
    const auto work = [](const RankInterval& each) {
      return std::accumulate(each.split_ms.begin(), each.split_ms.end(), 0.0) -
             each.part_ms(StepPart::exposed);
    };
    std::vector<double> works;
    for (const auto& each : ranks) works.push_back(work(each));
    std::ranges::sort(works);
    for (auto& each : ranks) {
      each.split_ms[at(StepPart::exposed)] += works.back() - work(each);
      each.late_ms = std::max(work(each) - works[1], 0.0);
      each.last = work(each) == works.back() && works[3] > works[2] ? 1 : 0;
      each.step_ms = each.p50_ms = each.max_ms =
          std::accumulate(each.split_ms.begin(), each.split_ms.end(), 0.0);
      input.intervals.push_back(each);
    }
  }
  return input;
}

TEST(RunAnalysis, AQuietRunHasNoAdvice) {
  const auto analysis = analyse(run_with([](RankInterval&) {}));
  EXPECT_EQ(analysis.world, 4);
  EXPECT_EQ(analysis.steps, 20) << "the first interval includes the start";
  EXPECT_DOUBLE_EQ(analysis.step_ms, 100);
  EXPECT_TRUE(analysis.stragglers.empty());
  EXPECT_TRUE(analysis.advice.empty()) << to_text(analysis);
  EXPECT_NE(to_text(analysis).find("Advice: none"), std::string::npos);
}

// The links of rank 2 are slow, in both directions; all machines are busy.
TEST(RunAnalysis, TheRankWithSlowLinksIsNamed) {
  const auto analysis = analyse(run_with([](RankInterval& r) {
    r.split_ms[at(StepPart::exposed)] = 60;
    r.run_queue_ms = 80;
    r.slowest_peer = r.rank == 2 ? 0 : 2;
    r.slowest_peer_mb_per_s = 12;
    r.fastest_peer_mb_per_s = r.rank == 2 ? 12.5 : 400;
  }));
  const auto found = std::ranges::find(analysis.advice, Cause::link, &Advice::cause);
  ASSERT_NE(found, analysis.advice.end()) << to_text(analysis);
  EXPECT_EQ(found->rank, 2);
  EXPECT_NE(found->text.find("the links of rank 2 move 12.0 MB/s, others 400.0 MB/s"),
            std::string::npos)
      << found->text;
}

// What is injected on rank 2, the cause to be named, and the time that is lost.
struct Injected {
  const char* name;
  void (*change)(RankInterval&);
  Cause cause;
  double lost_ms;
};

class ALateRank : public ::testing::TestWithParam<Injected> {};

TEST_P(ALateRank, IsNamedWithItsCauseAndTheOthersAreNot) {
  const auto& injected = GetParam();
  const auto analysis = analyse(run_with([&](RankInterval& rank) {
    if (rank.rank == 2) injected.change(rank);
  }));
  ASSERT_EQ(analysis.stragglers.size(), 1U) << to_text(analysis);
  EXPECT_EQ(analysis.stragglers[0].rank, 2);
  EXPECT_EQ(name_of(analysis.stragglers[0].cause), name_of(injected.cause)) << to_text(analysis);
  EXPECT_NEAR(analysis.stragglers[0].late_ms, injected.lost_ms, 1e-9);
  EXPECT_EQ(analysis.stragglers[0].last, 1);
  // Following the advice saves what is lost.
  const auto before = analysis.step_ms;
  const auto after = analyse(run_with([](RankInterval&) {})).step_ms;
  ASSERT_FALSE(analysis.advice.empty());
  EXPECT_EQ(analysis.advice[0].cause, injected.cause);
  EXPECT_EQ(analysis.advice[0].rank.value_or(2), 2);
  EXPECT_GE((before - after) / before, analysis.advice[0].gain / 2);
  EXPECT_GE(analysis.advice[0].gain, 0.5 * (before - after) / before);
  EXPECT_FALSE(analysis.advice[0].action.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Causes, ALateRank,
    ::testing::Values(Injected{"Loader",
                               [](RankInterval& r) { r.split_ms[at(StepPart::data_wait)] += 30; },
                               Cause::data, 30},
                      Injected{"SlowCore",
                               [](RankInterval& r) {
                                 r.split_ms[at(StepPart::forward)] += 15;
                                 r.split_ms[at(StepPart::backward)] += 25;
                                 r.cpu_ms += 40;
                               },
                               Cause::compute, 40},
                      Injected{"BusyCore",
                               [](RankInterval& r) {
                                 r.split_ms[at(StepPart::backward)] += 40;
                                 r.run_queue_ms = 38;
                               },
                               Cause::processor, 40},
                      Injected{"Steal",
                               [](RankInterval& r) {
                                 r.split_ms[at(StepPart::backward)] += 40;
                                 r.step_ms = 140;
                                 r.steal = 0.28;
                               },
                               Cause::steal, 40},
                      Injected{"Throttled",
                               [](RankInterval& r) {
                                 r.split_ms[at(StepPart::forward)] += 40;
                                 r.throttled_ms = 39;
                               },
                               Cause::throttled, 40},
                      Injected{"Disk",
                               [](RankInterval& r) { r.split_ms[at(StepPart::checkpoint)] += 30; },
                               Cause::checkpoint, 30}),
    [](const auto& each) { return each.param.name; });

TEST(RunAnalysis, WhatStopsAllRanksIsNamedToo) {
  const auto data = analyse(run_with([](RankInterval& r) { r.split_ms[0] += 40; }));
  ASSERT_EQ(data.advice.size(), 1U) << to_text(data);
  EXPECT_EQ(data.advice[0].cause, Cause::data);
  EXPECT_FALSE(data.advice[0].rank.has_value());
  EXPECT_NE(data.advice[0].action.find("--workers 2"), std::string::npos);

  const auto throttled = analyse(run_with([](RankInterval& r) {
    r.split_ms[at(StepPart::forward)] += 100;
    r.throttled_ms = 95;
    r.run_queue_ms = 95;  // the kernel counts it as waiting too
  }));
  ASSERT_EQ(throttled.advice.size(), 1U) << to_text(throttled);
  EXPECT_EQ(throttled.advice[0].cause, Cause::throttled);

  const auto crowded = analyse(run_with([](RankInterval& r) {
    r.split_ms[at(StepPart::forward)] += 50;
    r.run_queue_ms = 50;
  }));
  ASSERT_EQ(crowded.advice.size(), 1U) << to_text(crowded);
  EXPECT_EQ(crowded.advice[0].cause, Cause::processor);
}

// Buckets of `bytes` each whose reductions take latency_ms + bytes / rate.
std::vector<BucketFigures> buckets_of(int count, double bytes, double latency_ms,
                                      double bytes_per_ms) {
  std::vector<BucketFigures> result;
  double done = 0;
  for (int i = 0; i < count; ++i) {
    BucketFigures bucket{.bucket = i, .bytes = bytes * (1 + i % 3)};
    bucket.ready_ms = 50.0 * (i + 1) / count;
    bucket.launched_ms = bucket.ready_ms;
    bucket.all_in_ms = std::max(done, bucket.launched_ms);
    bucket.done_ms = bucket.all_in_ms + latency_ms + bucket.bytes / bytes_per_ms;
    bucket.gb_per_s = 1e-6 * bucket.bytes / (bucket.done_ms - bucket.all_in_ms);
    done = bucket.done_ms;
    result.push_back(bucket);
  }
  return result;
}

TEST(RunAnalysis, TinyBucketsAndASlowLinkAreTold) {
  const auto exposed = [](RankInterval& r) { r.split_ms[at(StepPart::exposed)] = 30; };
  auto tiny = run_with([](RankInterval& r) { r.launch_ms = 20; });
  tiny.buckets = buckets_of(100, 10e3, 0.5, 1e7);
  const auto of_tiny = analyse(tiny);
  ASSERT_EQ(of_tiny.advice.size(), 1U) << to_text(of_tiny);
  EXPECT_EQ(of_tiny.advice[0].cause, Cause::small_buckets);
  EXPECT_NEAR(of_tiny.advice[0].gain, (20 * 0.99 - 0.5 - 0.199) / of_tiny.step_ms, 1e-9)
      << "one bucket of 1.99 MB remains: its call, 0.5 ms of latency and 0.199 ms for its bytes";

  auto link = run_with(exposed);
  link.buckets = buckets_of(4, 10e6, 0.01, 1e6);
  const auto of_link = analyse(link);
  ASSERT_EQ(of_link.advice.size(), 1U) << to_text(of_link);
  EXPECT_EQ(of_link.advice[0].cause, Cause::link);
  EXPECT_NEAR(of_link.buckets.mean_gb_per_s, 1, 0.05);
}

// Larger buckets would have to be reduced too, and less of that would be hidden.
TEST(RunAnalysis, SmallBucketsWhoseCallsCostNoMoreThanTheirBytesAreNotBlamed) {
  auto input = run_with([](RankInterval& r) { r.launch_ms = 5; });
  input.buckets = buckets_of(100, 100e3, 0.01, 5e6);  // all reductions together: 4 ms for the bytes
  EXPECT_TRUE(analyse(input).advice.empty()) << to_text(analyse(input));
}

TEST(RunAnalysis, RanksThatDoNotRunAreNotASlowLink) {
  auto input = run_with([](RankInterval& r) {
    r.split_ms[at(StepPart::exposed)] = 30;
    r.run_queue_ms = 80;
  });
  input.buckets = buckets_of(4, 10e6, 0.01, 1e6);
  const auto analysis = analyse(input);
  ASSERT_EQ(analysis.advice.size(), 1U) << to_text(analysis);
  EXPECT_EQ(analysis.advice[0].cause, Cause::processor);
  EXPECT_LE(analysis.advice[0].gain, 50 / analysis.step_ms + 1e-9) << "waiting ranks are ready too";
}

TEST(RunAnalysis, ASaveThatFailedIsTold) {
  auto input = run_with([](RankInterval&) {});
  input.facts.save_failures.push_back({.rank = 1, .text = "no space left on device"});
  const auto analysis = analyse(input);
  ASSERT_EQ(analysis.advice.size(), 1U);
  EXPECT_EQ(analysis.advice[0].cause, Cause::checkpoint);
  EXPECT_EQ(analysis.advice[0].rank, 1);
}

TEST(RunAnalysis, OverheadComparesWithTheSameStepWithoutDdp) {
  auto input = run_with([](RankInterval&) {});
  input.facts.step_ms_without_ddp = 80;
  EXPECT_DOUBLE_EQ(analyse(input).communication_overhead.value(), 0.25);
}

TEST(BucketAnalysis, FindsLatencyAndRate) {
  const auto buckets = buckets_of(9, 1e6, 0.2, 5e5);
  const auto model = fit_reductions(buckets);
  EXPECT_NEAR(model.latency_ms, 0.2, 1e-6);
  EXPECT_NEAR(model.bytes_per_ms, 5e5, 1);
  const auto analysis = analyse_buckets(buckets, 1);
  EXPECT_DOUBLE_EQ(analysis.total_bytes, 18e6);
  EXPECT_TRUE(analysis.slow.empty());
}

TEST(BucketAnalysis, NamesBucketsBelowHalfOfTheMean) {
  auto buckets = buckets_of(6, 1e6, 0, 1e6);
  buckets[4].done_ms += 4 * (buckets[4].done_ms - buckets[4].all_in_ms);
  buckets[4].gb_per_s /= 5;
  const auto analysis = analyse_buckets(buckets, 0);
  EXPECT_EQ(analysis.slow, std::vector{4});
  EXPECT_EQ(analysis.slowest, 4);
}

// By hand: 4 MB arrive evenly in 40 ms, a reduction takes 1 ms + 1 ms per MB.
TEST(BucketAnalysis, PredictsTheExposedTimeOfABucketSize) {
  std::vector<BucketFigures> buckets;
  for (int i = 0; i < 4; ++i)
    buckets.push_back({.bucket = i, .bytes = 1e6, .ready_ms = 10.0 * (i + 1)});
  const ReductionModel model{.latency_ms = 1, .bytes_per_ms = 1e6};
  EXPECT_DOUBLE_EQ(exposed_with(buckets, model, 4e6), 5);
  EXPECT_DOUBLE_EQ(exposed_with(buckets, model, 1e6), 2);
  EXPECT_DOUBLE_EQ(exposed_with(buckets, model, 5e5), 1.5);
}

TEST(RunAnalysis, JsonHasWhatTheTextHas) {
  auto input = run_with([](RankInterval& rank) { rank.split_ms[0] += rank.rank == 3 ? 50 : 0; });
  input.buckets = buckets_of(3, 1e6, 0.1, 1e6);
  const auto analysis = analyse(input);
  const auto json = nlohmann::json::parse(to_json(analysis));
  EXPECT_EQ(json["world"], 4);
  EXPECT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["stragglers"][0]["rank"], 3);
  EXPECT_EQ(json["stragglers"][0]["cause"], "data");
  EXPECT_EQ(json["advice"][0]["rank"], 3);
  EXPECT_EQ(json["buckets"]["count"], 3);
  EXPECT_TRUE(json["communication_overhead"].is_null());
  const auto text = to_text(analysis, 80);
  EXPECT_NE(text.find("rank 3"), std::string::npos);
  EXPECT_EQ(analyse({}).world, 0);
  EXPECT_FALSE(to_text(analyse({})).empty());
}

}  // namespace
}  // namespace lockstep
