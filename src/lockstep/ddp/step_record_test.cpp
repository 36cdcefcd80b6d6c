#include "lockstep/ddp/step_record.h"

#include <gtest/gtest.h>

#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

// The spans of `kind` by bucket, in nanoseconds after `start`.
std::map<int, std::pair<std::int64_t, std::int64_t>> spans_of(EventKind kind,
                                                              const std::vector<TraceEvent>& events,
                                                              StepClock::time_point start) {
  const auto anchor = TickAnchor::now();
  std::map<int, std::pair<std::int64_t, std::int64_t>> result;
  for (const auto& event : events) {
    if (event.kind != kind) continue;
    result[event.index] = {(anchor.steady(event.begin) - start).count(),
                           (anchor.steady(event.end) - start).count()};
  }
  return result;
}

TEST(StepRecord, TracesWhenBucketsWereReadyLaunchedEnteredByAllAndDone) {
  const auto start = StepClock::now() - 20ms;
  StepRecord record;
  record.exposed = 5ms;
  record.buckets.push_back({.bytes = 3'000'000,
                            .ready = start,
                            .launched = start + 1ms,
                            .all_entered = start + 4ms,
                            .done = start + 6ms,
                            .hooks_before = 2});
  record.buckets.push_back({.bytes = 64, .ready = start, .launched = start + 2ms});  // frozen
  EXPECT_DOUBLE_EQ(record.buckets[0].bytes_per_second(), 1.5e9);
  EXPECT_EQ(record.buckets[1].bytes_per_second(), 0);
  EXPECT_EQ(last_entry(record), start + 1ms);
  Trace events;
  trace(record, events);
  EXPECT_EQ(events.step(), 1) << "a reduction is a step";
  const auto drained = events.drain();
  ASSERT_EQ(drained.size(), 4U);
  // Ticks are converted there and back: a microsecond is the tolerance.
  for (const auto& [kind, begin, end] :
       {std::tuple(EventKind::bucket_ready, 0, 1), std::tuple(EventKind::bucket_wait, 1, 4),
        std::tuple(EventKind::bucket_reduce, 4, 6)}) {
    const auto spans = spans_of(kind, drained, start);
    ASSERT_EQ(spans.size(), 1U);
    EXPECT_NEAR(static_cast<double>(spans.at(0).first), 1e6 * begin, 1e4);
    EXPECT_NEAR(static_cast<double>(spans.at(0).second), 1e6 * end, 1e4);
  }
  EXPECT_STREQ(drained.back().name, "exposed communication");
}

TEST(StepRecord, TracesAWaitForMemoryOfGradientsThatEndsWhenTheBucketIsLaunched) {
  const auto start = StepClock::now() - 20ms;
  StepRecord record;
  for (const auto room : {0ms, 3ms}) {
    record.buckets.push_back({.bytes = 64,
                              .ready = start,
                              .launched = start + 4ms,
                              .all_entered = start + 4ms,
                              .done = start + 5ms,
                              .room = room});
  }
  Trace events;
  trace(record, events);
  const auto anchor = TickAnchor::now();
  int found = 0;
  for (const auto& event : events.drain()) {
    if (event.kind != EventKind::span) continue;
    if (std::string_view(event.name) != "wait for memory of gradients") continue;
    ++found;
    EXPECT_NEAR(static_cast<double>((anchor.steady(event.begin) - start).count()), 1e6, 1e4);
    EXPECT_NEAR(static_cast<double>((anchor.steady(event.end) - start).count()), 4e6, 1e4);
  }
  EXPECT_EQ(found, 1) << "of the second bucket only";
}

TEST(StepRecord, TheTimeOfOverlappingReductionsCountsOnce) {
  const StepClock::time_point start{1h};
  StepRecord record;
  const auto add = [&](auto launched, auto done) {
    record.buckets.push_back({.bytes = 1, .launched = start + launched, .done = start + done});
  };
  add(0ms, 4ms);
  add(1ms, 3ms);
  add(2ms, 6ms);
  add(10ms, 11ms);
  EXPECT_EQ(reducing_time(record), 7ms);
  EXPECT_EQ(last_entry(record), start + 10ms);
  EXPECT_EQ(reducing_time({}), 0ms);
}

TEST(BucketMeter, GivesMeansOverStepsAndRanks) {
  const StepClock::time_point begin{1h};
  const auto step_of = [&](auto all_entered, auto done) {
    StepRecord record;
    record.buckets.push_back({.bytes = 1'000'000,
                              .ready = begin + 1ms,
                              .launched = begin + 2ms,
                              .all_entered = begin + all_entered,
                              .done = begin + done});
    record.buckets.push_back({.bytes = 64});  // frozen
    return record;
  };
  BucketMeter first;
  BucketMeter second;
  first.add(step_of(3ms, 4ms), begin);
  first.add(step_of(5ms, 8ms), begin);
  second.add(step_of(2ms, 4ms), begin);
  second.add(step_of(2ms, 4ms), begin);
  const std::vector of_ranks{first.read_and_reset(), second.read_and_reset()};
  EXPECT_EQ(first.steps(), 0);
  const auto means = mean_buckets(of_ranks);
  ASSERT_EQ(means.size(), 1U);
  EXPECT_EQ(means[0].bucket, 0);
  EXPECT_DOUBLE_EQ(means[0].bytes, 1e6);
  EXPECT_DOUBLE_EQ(means[0].all_in_ms, 3);
  EXPECT_DOUBLE_EQ(means[0].done_ms, 5);
  EXPECT_DOUBLE_EQ(means[0].gb_per_s, 4e6 / 8e6);  // 4 MB in 1 + 3 + 2 + 2 ms
}

TEST(BucketMeter, CombinesNeighboursIfThereAreMany) {
  const StepClock::time_point begin{1h};
  StepRecord record;
  for (int i = 0; i < 130; ++i) {  // more than twice kMaxBuckets: three per row
    record.buckets.push_back({.bytes = 100 + i % 3,
                              .ready = begin,
                              .launched = begin + 1ms,
                              .all_entered = begin + 1ms,
                              .done = begin + 2ms});
  }
  BucketMeter meter;
  meter.add(record, begin);
  const std::vector<std::vector<double>> of_ranks(1, meter.read_and_reset());
  const auto means = mean_buckets(of_ranks);
  ASSERT_EQ(means.size(), 44U);
  EXPECT_EQ(means[1].bucket, 3);
  EXPECT_DOUBLE_EQ(means[1].count, 3);
  EXPECT_DOUBLE_EQ(means[1].bytes, 101);
  EXPECT_DOUBLE_EQ(means[1].done_ms, 2);
  EXPECT_DOUBLE_EQ(means.back().count, 1);
  double count = 0;
  for (const auto& mean : means) count += mean.count;
  EXPECT_DOUBLE_EQ(count, 130);
}

TEST(StepRecord, OfAStepHasEveryBucketInOrder) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    Trace events;
    TestNet net;
    Ddp ddp(*net, group, {.bucket_bytes = 1, .trace = &events});
    const auto before = StepClock::now();
    net->forward(batch_of(group.rank(), 0)).sum().backward();
    const auto after = StepClock::now();
    const auto& record = ddp.record();
    const auto num_buckets = net->parameters().size();
    ASSERT_EQ(record.buckets.size(), num_buckets)
        << "with bucket_bytes 1 a bucket has one parameter";
    EXPECT_EQ(record.hooks, static_cast<int>(num_buckets));
    const auto reduced = spans_of(EventKind::bucket_reduce, events.drain(), before);
    ASSERT_EQ(reduced.size(), num_buckets);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < num_buckets; ++i) {
      const auto& bucket = record.buckets[i];
      EXPECT_LE(before, bucket.ready);
      EXPECT_LE(bucket.ready, bucket.launched);
      EXPECT_LE(bucket.launched, bucket.all_entered);
      EXPECT_LT(bucket.all_entered, bucket.done);
      EXPECT_LE(bucket.done, after);
      EXPECT_GT(bucket.bytes_per_second(), 0);
      EXPECT_NEAR(static_cast<double>(reduced.at(static_cast<int>(i)).second),
                  static_cast<double>((bucket.done - before).count()), 2e4);
      bytes += bucket.bytes;
    }
    std::int64_t expected = 0;
    for (const auto& parameter : net->parameters()) {
      expected += static_cast<std::int64_t>(parameter.nbytes());
    }
    EXPECT_EQ(bytes, expected);
    EXPECT_GT(record.exposed, 0ns);
    EXPECT_GT(record.launching, 0ns);
    EXPECT_LE(record.launching + record.exposed, after - before);
    EXPECT_LE(record.exposed, after - before);
  });
}

// The analysis of a run sums these durations: a bucket must not seem to be reduced until finish().
TEST(StepRecord, ABucketOfAFewBytesIsDoneBeforeTheNextOneIsLaunched) {
  with_ddp_groups(1, [](ProcessGroup& group) {
    TestNet net;
    Ddp ddp(*net, group, {.bucket_bytes = 1});
    net->forward(batch_of(0, 0)).sum().backward();
    const auto& buckets = ddp.record().buckets;
    ASSERT_GE(buckets.size(), 2U);
    for (std::size_t i = 1; i < buckets.size(); ++i) {
      EXPECT_LE(buckets[i - 1].done, buckets[i].launched + 20us) << "two clocks are compared";
    }
  });
}

}  // namespace
}  // namespace lockstep
