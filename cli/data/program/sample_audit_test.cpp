// The audit detects the common mistakes: no sampler, a wrong world size, an epoch that was not set;
// and finds no fault in lockstep's own sampler.
#include "cli/data/program/sample_audit.h"

#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/sampler.h"

namespace lockstep::cli {
namespace {

using Samples = std::vector<std::int64_t>;

Samples counting(std::int64_t from, std::int64_t count) {
  Samples samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), from);
  return samples;
}

AuditResult audit(std::int64_t size, const std::vector<Samples>& steps) {
  SampleAudit counts(size);
  for (const auto& step : steps) counts.add_step(step);
  return counts.result();
}

AuditResult audit_sampler(std::int64_t size, int world, std::int64_t epoch) {
  SampleAudit counts(size);
  std::vector<Sampler> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back(
        Order(size), 0,
        SamplerOptions{.global_batch = 12, .rank = rank, .world = world, .tail = Tail::uneven});
    ranks.back().set_epoch(epoch);
  }
  for (auto left = ranks.front().steps_per_epoch(); left > 0; --left) {
    Samples batch;
    for (auto& rank : ranks) {
      const auto shard = rank.next().samples;
      batch.insert(batch.end(), shard.begin(), shard.end());
    }
    counts.add_step(batch);
  }
  return counts.result();
}

TEST(SampleAudit, EachSampleOnceIsCorrect) {
  const auto result = audit(6, {{5, 1}, {0, 2}, {4, 3}});
  EXPECT_EQ(result.num_once, 6);
  EXPECT_EQ(result.num_missing, 0);
  EXPECT_EQ(result.num_repeated, 0);
}

TEST(SampleAudit, RanksWithoutASamplerRepeatEverything) {
  auto batch = counting(0, 4);
  const auto same = counting(0, 4);
  batch.insert(batch.end(), same.begin(), same.end());
  const auto result = audit(4, {batch});
  EXPECT_EQ(result.num_repeated, 4);
  EXPECT_EQ(result.first_repeated, counting(0, 4));
}

TEST(SampleAudit, AWrongWorldSizeLeavesSamplesOut) {
  // Two ranks whose samplers have world size four.
  const auto result = audit(8, {{0, 1}, {4, 5}});
  EXPECT_EQ(result.num_missing, 4);
  EXPECT_EQ(result.first_missing, (Samples{2, 3, 6, 7}));
}

TEST(SampleAudit, AnInvalidSampleNumberIsRefused) {
  EXPECT_THROW(audit(2, {{0, 2}}), UsageError);
  EXPECT_THROW(audit(2, {{-1}}), UsageError);
}

TEST(SampleAudit, BatchesAreComparedAsSetsAndOrdersAsSequences) {
  const auto one = audit(4, {{0, 1}, {2, 3}});
  const auto other = audit(4, {{1, 0}, {3, 2}});
  const auto later = audit(4, {{2, 3}, {0, 1}});
  EXPECT_EQ(one.batches, other.batches);
  EXPECT_NE(one.order, other.order);
  EXPECT_NE(one.batches, later.batches);
}

TEST(SampleAudit, FindsNoFaultInTheSamplerAtAnyWorldSizeAndANewOrderPerEpoch) {
  const auto alone = audit_sampler(1000, 1, 0);
  for (const int world : {2, 3, 4, 6, 12}) {
    const auto result = audit_sampler(1000, world, 0);
    EXPECT_EQ(result.num_once, 1000);
    EXPECT_EQ(result.batches, alone.batches) << world;
  }
  EXPECT_NE(audit_sampler(1000, 1, 1).order, alone.order);
}

}  // namespace
}  // namespace lockstep::cli
