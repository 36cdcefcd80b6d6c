#include "lockstep/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kDataId = 0xDA7A;
using Samples = std::vector<std::int64_t>;

Sampler sampler(std::int64_t size, const SamplerOptions& options, const OrderOptions& order = {}) {
  return {Order(size, order), kDataId, options};
}

/// The remaining steps of the current epoch on this rank, one list per step.
std::vector<Samples> epoch_of(Sampler& sampler) {
  std::vector<Samples> steps;
  for (bool ended = false; !ended;) {
    auto step = sampler.next();
    ended = step.ends_epoch;
    steps.push_back(std::move(step.samples));
  }
  return steps;
}

/// The samples of all ranks in the next step, in order of position.
struct WholeStep {
  Samples samples;
  StepShard of_rank_0;
};

WholeStep next_of_all(std::vector<Sampler>& ranks) {
  WholeStep whole;
  for (auto& rank : ranks) {
    auto step = rank.next();
    whole.samples.insert(whole.samples.end(), step.samples.begin(), step.samples.end());
    if (rank.options().rank == 0) whole.of_rank_0 = std::move(step);
  }
  return whole;
}

std::vector<Sampler> all_ranks(std::int64_t size, SamplerOptions options,
                               const OrderOptions& order) {
  std::vector<Sampler> ranks;
  for (options.rank = 0; options.rank < options.world; ++options.rank) {
    ranks.push_back(sampler(size, options, order));
  }
  return ranks;
}

Samples python_shard(std::int64_t size, int world, int rank, Tail tail) {
  auto one = sampler(size,
                     {.global_batch = world,
                      .rank = rank,
                      .world = world,
                      .shard = SampleShard::stride,
                      .tail = tail,
                      .tail_unit = TailUnit::world},
                     {.kind = OrderKind::sequential});
  Samples joined;
  for (const auto& step : epoch_of(one)) joined.insert(joined.end(), step.begin(), step.end());
  return joined;
}

TEST(Sampler, DealsAsPythonsDistributedSamplerDoes) {
  EXPECT_EQ(python_shard(10, 4, 0, Tail::pad), (Samples{0, 4, 8}));
  EXPECT_EQ(python_shard(10, 4, 2, Tail::pad), (Samples{2, 6, 0}));
  EXPECT_EQ(python_shard(10, 4, 3, Tail::pad), (Samples{3, 7, 1}));
  EXPECT_EQ(python_shard(10, 4, 1, Tail::drop), (Samples{1, 5}));
  EXPECT_EQ(python_shard(11, 4, 3, Tail::pad), (Samples{3, 7, 0}));
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(python_shard(2, 8, rank, Tail::pad), (Samples{rank % 2}));
  }
}

TEST(Sampler, GivesEachSampleOncePerEpochAtEveryWorldSize) {
  for (const auto shard : {SampleShard::chunk, SampleShard::stride}) {
    for (const int world : {1, 2, 3, 4, 6, 12}) {
      for (const std::int64_t size : {1, 5, 12, 100, 121, 143}) {
        auto ranks = all_ranks(
            size, {.global_batch = 12, .world = world, .shard = shard, .tail = Tail::uneven},
            {.seed = 5});
        for (int epoch = 0; epoch < 3; ++epoch) {
          Samples seen;
          std::size_t num_steps = 0;
          for (auto& rank : ranks) {
            const auto steps = epoch_of(rank);
            if (rank.options().rank == 0) num_steps = steps.size();
            EXPECT_EQ(steps.size(), num_steps) << "every rank runs the same number of steps";
            for (const auto& step : steps) seen.insert(seen.end(), step.begin(), step.end());
          }
          std::sort(seen.begin(), seen.end());
          ASSERT_EQ(static_cast<std::int64_t>(seen.size()), size);
          for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
        }
      }
    }
  }
}

TEST(Sampler, ShardsOfAnUnevenTailDifferByOneAtMost) {
  for (const auto shard : {SampleShard::chunk, SampleShard::stride}) {
    for (std::int64_t size = 1; size < 12; ++size) {
      auto ranks = all_ranks(
          size, {.global_batch = 12, .world = 4, .shard = shard, .tail = Tail::uneven}, {});
      std::size_t least = 99;
      std::size_t most = 0;
      for (auto& rank : ranks) {
        const auto step = rank.next();
        EXPECT_EQ(step.global_samples, size);
        least = std::min(least, step.samples.size());
        most = std::max(most, step.samples.size());
      }
      EXPECT_LE(most - least, 1u);
    }
  }
}

TEST(Sampler, PaddingRepeatsTheHeadAndCountsIt) {
  auto ranks = all_ranks(10, {.global_batch = 4, .world = 2, .tail = Tail::pad}, {.seed = 9});
  const auto first = next_of_all(ranks);
  EXPECT_EQ(first.of_rank_0.repeated, 0);
  (void)next_of_all(ranks);
  const auto last = next_of_all(ranks);
  EXPECT_EQ(last.of_rank_0.repeated, 2);
  EXPECT_TRUE(last.of_rank_0.ends_epoch);
  EXPECT_EQ(last.samples.size(), 4u);
  EXPECT_TRUE(std::equal(last.samples.begin() + 2, last.samples.end(), first.samples.begin()));
}

TEST(Sampler, DroppingLeavesOutOtherSamplesEachEpoch) {
  auto one = sampler(10, {.global_batch = 4}, {.seed = 2});
  EXPECT_EQ(one.steps_per_epoch(), 2);
  std::map<std::int64_t, int> seen;
  for (int epoch = 0; epoch < 40; ++epoch) {
    for (const auto& step : epoch_of(one)) {
      for (const auto sample : step) ++seen[sample];
    }
  }
  EXPECT_EQ(seen.size(), 10u);
}

TEST(Sampler, EpochsAdvanceAutomaticallyAndSetEpochGoesAnywhere) {
  auto one = sampler(20, {.global_batch = 4}, {.seed = 1});
  const auto epoch0 = epoch_of(one);
  const auto epoch1 = epoch_of(one);
  EXPECT_NE(epoch0, epoch1);
  EXPECT_EQ(one.state().epoch, 2);
  one.set_epoch(1);
  EXPECT_EQ(epoch_of(one), epoch1);
  one.set_epoch(0);
  EXPECT_EQ(epoch_of(one), epoch0);
  EXPECT_THROW(one.set_epoch(-1), UsageError);
}

TEST(Sampler, EvaluationGivesEverySampleOnceInOrder) {
  Samples joined;
  for (int rank = 0; rank < 3; ++rank) {
    auto evaluation = evaluation_sampler(7, kDataId, 3, rank, 3);
    EXPECT_EQ(evaluation.steps_per_epoch(), 3);
    const auto steps = epoch_of(evaluation);
    EXPECT_EQ(steps[0], (Samples{rank}));
    EXPECT_EQ(steps[2], rank == 2 ? Samples{6} : Samples{});
    for (const auto& step : steps) joined.insert(joined.end(), step.begin(), step.end());
  }
  std::sort(joined.begin(), joined.end());
  EXPECT_EQ(joined, (Samples{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Sampler, ResumesAtAnyWorldSizeWithTheSameGlobalBatches) {
  // Every tail with TailUnit::batch, a size that is not a multiple, stopped after every step.
  for (const auto tail : {Tail::drop, Tail::pad, Tail::uneven}) {
    for (const auto kind : {OrderKind::native, OrderKind::torch}) {
      const OrderOptions order{.kind = kind, .seed = 77};
      const SamplerOptions alone{.global_batch = 12, .world = 1, .tail = tail};
      auto unbroken = all_ranks(101, alone, order);
      std::vector<Samples> expected;
      for (int step = 0; step < 30; ++step) expected.push_back(next_of_all(unbroken).samples);

      constexpr std::array worlds{1, 2, 4, 3, 6, 12};
      SamplerState state{kDataId, 77, 0, 0};
      for (std::size_t step = 0; step < expected.size(); ++step) {
        SamplerOptions now = alone;
        now.world = worlds[step % worlds.size()];
        auto ranks = all_ranks(101, now, order);
        for (auto& rank : ranks) rank.restore(sampler_state_from_json(to_json(state)));
        const auto whole = next_of_all(ranks);
        ASSERT_EQ(whole.samples, expected[step]) << "step " << step << ", world " << now.world;
        state = whole.of_rank_0.after;
        for (const auto& rank : ranks) ASSERT_EQ(rank.state(), state);
      }
    }
  }
}

TEST(Sampler, AnotherGlobalBatchContinuesWithTheNextSample) {
  auto small = sampler(100, {.global_batch = 7, .tail = Tail::uneven}, {.seed = 3});
  auto serial = sampler(100, {.global_batch = 100, .tail = Tail::uneven}, {.seed = 3});
  const auto expected = serial.next().samples;
  Samples joined;
  for (int step = 0; step < 3; ++step) {
    const auto samples = small.next().samples;
    joined.insert(joined.end(), samples.begin(), samples.end());
  }
  auto large = sampler(100, {.global_batch = 10, .tail = Tail::uneven}, {.seed = 3});
  large.restore(small.state());
  EXPECT_EQ(large.steps_left(), 8);
  for (const auto& step : epoch_of(large)) joined.insert(joined.end(), step.begin(), step.end());
  EXPECT_EQ(joined, expected);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Sampler, RefusesAWorldThatDoesNotDivideTheBatchAndNamesThoseThatDo) {
  EXPECT_EQ(message_of([] { (void)sampler(100, {.global_batch = 12, .world = 5}); }),
            "a global batch of 12 is not divisible by 5 ranks; use a global batch of 10 or 15, or "
            "one of these numbers of ranks: 4, 6, 3, 2");
  EXPECT_EQ(message_of([] { (void)sampler(100, {.global_batch = 4, .rank = 4, .world = 4}); }),
            "SamplerOptions::rank is 4, but .world is 4, with ranks 0 to 3: use the world's rank "
            "and size");
  EXPECT_EQ(message_of([] { (void)sampler(3, {.global_batch = 4}); }),
            "3 samples are fewer than a global batch of 4, so an epoch with Tail::drop has no "
            "step; use Tail::pad or Tail::uneven, or a smaller batch");
}

TEST(Sampler, RefusesAStateOfOtherDataAnotherSeedOrAnInvalidPosition) {
  auto one = sampler(100, {.global_batch = 4}, {.seed = 1});
  EXPECT_THROW(one.restore({kDataId + 1, 1, 0, 0}), UsageError);
  EXPECT_THROW(one.restore({kDataId, 2, 0, 0}), UsageError);
  EXPECT_THROW(one.restore({kDataId, 1, 0, 101}), UsageError);
  EXPECT_THROW(one.restore({kDataId, 1, -1, 0}), UsageError);
  one.restore({kDataId, 1, 3, 100});  // a complete epoch: the next one begins
  EXPECT_EQ(one.state(), (SamplerState{kDataId, 1, 4, 0}));
}

TEST(SamplerState, SurvivesAsJson) {
  const SamplerState state{0xFFFF'FFFF'FFFF'FFFF, 0xFFFF'FFFF'FFFF'FFFE, 12, 345};
  EXPECT_EQ(to_json(state), R"({"data_id":"ffffffffffffffff","epoch":12,"position":345,)"
                            R"("seed":"18446744073709551614"})");
  EXPECT_EQ(sampler_state_from_json(to_json(state)), state);
  for (const auto* broken :
       {"", "{}", "[1]", R"({"data_id":"xyz","seed":"1","epoch":0,"position":0})",
        R"({"data_id":"1","seed":1,"epoch":0,"position":0})"}) {
    EXPECT_THROW((void)sampler_state_from_json(broken), UsageError) << broken;
  }
}

}  // namespace
}  // namespace lockstep
