#include "lockstep/ddp/step_record.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

struct Spans final : TraceSink {
  void record(const TraceSpan& span) noexcept override {
    all.emplace_back(span.name, std::pair(span.begin, span.end));
  }
  void record(const TraceCounter& /*counter*/) noexcept override {}
  std::vector<std::pair<std::string, std::pair<StepClock::time_point, StepClock::time_point>>> all;
};

TEST(StepRecord, TracesWhenBucketsWereReadyLaunchedAndDone) {
  const StepClock::time_point start{1h};
  StepRecord record;
  record.exposed = 5ms;
  record.buckets.push_back({.bytes = 3'000'000,
                            .ready = start,
                            .launched = start + 1ms,
                            .done = start + 3ms,
                            .hooks_before = 2});
  record.buckets.push_back({.bytes = 64, .ready = start, .launched = start + 2ms});  // frozen
  EXPECT_DOUBLE_EQ(record.buckets[0].bytes_per_second(), 1.5e9);
  EXPECT_EQ(record.buckets[1].bytes_per_second(), 0);
  Spans spans;
  trace(record, start + 9ms, spans);
  ASSERT_EQ(spans.all.size(), 3U);
  EXPECT_EQ(spans.all[0].first, "bucket 0 ready");
  EXPECT_EQ(spans.all[0].second, std::pair(start, start + 1ms));
  EXPECT_EQ(spans.all[1].first, "bucket 0 reduced (3000000 bytes, 1.50 GB/s)");
  EXPECT_EQ(spans.all[1].second, std::pair(start + 1ms, start + 3ms));
  EXPECT_EQ(spans.all[2].first, "exposed communication");
  EXPECT_EQ(spans.all[2].second, std::pair(start + 4ms, start + 9ms));
}

TEST(StepRecord, OfAStepHasEveryBucketInOrder) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    Spans spans;
    TestNet net;
    Ddp ddp(*net, group, {.bucket_bytes = 1, .trace = &spans});
    const auto before = StepClock::now();
    net->forward(batch_of(group.rank(), 0)).sum().backward();
    const auto after = StepClock::now();
    const auto& record = ddp.record();
    const auto num_buckets = net->parameters().size();
    ASSERT_EQ(record.buckets.size(), num_buckets)
        << "with bucket_bytes 1 a bucket has one parameter";
    EXPECT_EQ(record.hooks, static_cast<int>(num_buckets));
    ASSERT_EQ(spans.all.size(), 2 * num_buckets + 1);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < num_buckets; ++i) {
      const auto& bucket = record.buckets[i];
      EXPECT_LE(before, bucket.ready);
      EXPECT_LE(bucket.ready, bucket.launched);
      EXPECT_LT(bucket.launched, bucket.done);
      EXPECT_LE(bucket.done, after);
      EXPECT_GT(bucket.bytes_per_second(), 0);
      EXPECT_EQ(spans.all[2 * i].second, std::pair(bucket.ready, bucket.launched));
      EXPECT_EQ(spans.all[2 * i + 1].second, std::pair(bucket.launched, bucket.done));
      bytes += bucket.bytes;
    }
    std::int64_t expected = 0;
    for (const auto& parameter : net->parameters()) {
      expected += static_cast<std::int64_t>(parameter.nbytes());
    }
    EXPECT_EQ(bytes, expected);
    EXPECT_GT(record.exposed, 0ns);
    EXPECT_LE(record.exposed, after - before);
  });
}

}  // namespace
}  // namespace lockstep
