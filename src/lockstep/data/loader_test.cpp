#include "lockstep/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/data/test_counting_data_internal.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Samples = std::vector<std::int64_t>;

// More than a hundred times what a test needs on an idle machine.
constexpr auto kLongEnough = 30s;

TEST_F(LoaderTest, GivesTheSamplersStreamWhateverTheNumberOfWorkers) {
  CountingData data(103);
  std::mutex mutex;
  std::mt19937 jitter(1);
  data.before_sample = [&](std::int64_t) {  // so that batches complete out of order
    const auto micros = [&] {
      const std::lock_guard lock(mutex);
      return jitter() % 20;
    }();
    std::this_thread::sleep_for(std::chrono::microseconds(micros));
  };
  for (const auto tail : {Tail::drop, Tail::pad, Tail::uneven}) {
    for (int workers = 0; workers <= 4; ++workers) {
      Loader loader(
          data, {.batch = {.local = 10}, .order = {.seed = 4}, .tail = tail, .workers = workers});
      Sampler sampler(Order(103, {.seed = 4}), data.id(), {.global_batch = 10, .tail = tail});
      for (int step = 0; step < 25; ++step) {
        const auto batch = loader.next();
        const auto expected = sampler.next();
        ASSERT_EQ(batch.samples, expected.samples);
        ASSERT_EQ(batch.epoch, expected.epoch);
        ASSERT_EQ(batch.ends_epoch, expected.ends_epoch);
        ASSERT_EQ(batch.repeated, expected.repeated);
        ASSERT_EQ(loader.state(), expected.after);
        expect_right(batch);
      }
    }
  }
}

TEST_F(LoaderTest, StoppedAtTwoHundredPointsAndResumedElsewhereNothingIsLostOrRepeated) {
  const CountingData data(1009);  // a prime: not divisible by any batch
  for (const auto tail : {Tail::drop, Tail::uneven}) {
    const BatchSizes alone{.local = 12, .world = 1};
    Loader unbroken(data, {.batch = alone, .order = {.seed = 6}, .tail = tail});
    std::mt19937 random(99);
    SamplerState state = unbroken.state();
    for (int stop = 0; stop < 200; ++stop) {
      const auto batch = change_world(
          alone, std::vector{1, 2, 4, 3}[static_cast<std::size_t>(stop % 4)], Keep::global);
      const int workers = static_cast<int>(random() % 5);
      const int steps = static_cast<int>(random() % 9);  // also 0
      std::vector<std::unique_ptr<Loader>> ranks;
      for (int rank = 0; rank < batch.world; ++rank) {
        ranks.push_back(std::make_unique<Loader>(data, LoaderOptions{.batch = batch,
                                                                     .rank = rank,
                                                                     .order = {.seed = 6},
                                                                     .tail = tail,
                                                                     .workers = workers,
                                                                     .prefetch = 1 + stop % 3}));
        ranks.back()->restore(sampler_state_from_json(to_json(state)));
      }
      for (int step = 0; step < steps; ++step) {
        Samples whole;
        for (auto& rank : ranks) {
          const auto mine = rank->next();
          expect_right(mine);
          whole.insert(whole.end(), mine.samples.begin(), mine.samples.end());
        }
        ASSERT_EQ(whole, unbroken.next().samples) << "stop " << stop << ", step " << step;
      }
      for (const auto& rank : ranks) ASSERT_EQ(rank->state(), unbroken.state());
      state = ranks.front()->state();  // the loaders are destroyed with batches read ahead
    }
    EXPECT_GT(state.epoch, 5);
  }
}

TEST_F(LoaderTest, EveryRankRunsTheSameNumberOfBatchesAndAShardMayBeEmpty) {
  const CountingData data(9);
  std::map<std::int64_t, int> seen;
  for (int rank = 0; rank < 4; ++rank) {
    Loader loader(
        data,
        {.batch = {.local = 2, .world = 4}, .rank = rank, .tail = Tail::uneven, .workers = 1});
    std::vector<std::int64_t> counts;
    for (const auto& batch : loader.epoch()) {
      expect_right(batch);
      counts.push_back(batch.count());
      EXPECT_EQ(batch.global_samples, counts.size() == 1 ? 8 : 1);
      for (const auto sample : batch.samples) ++seen[sample];
    }
    EXPECT_EQ(counts, (std::vector<std::int64_t>{2, rank == 3 ? 1 : 0}));
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST_F(LoaderTest, AccumulationCutsAStepIntoMicroBatchesAndStateMovesWithTheStep) {
  const CountingData data(48);
  for (const int workers : {0, 2}) {
    Loader loader(
        data,
        {.batch = {.local = 2, .accumulation = 3, .world = 2}, .rank = 1, .workers = workers});
    Sampler sampler(Order(48), data.id(), {.global_batch = 12, .rank = 1, .world = 2});
    for (int step = 0; step < 5; ++step) {
      const auto before = loader.state();
      Samples joined;
      for (int micro = 0; micro < 3; ++micro) {
        EXPECT_EQ(loader.state(), before);
        const auto batch = loader.next();
        EXPECT_EQ(batch.micro_batch, micro);
        EXPECT_EQ(batch.ends_step, micro == 2);
        EXPECT_EQ(batch.count(), 2);
        joined.insert(joined.end(), batch.samples.begin(), batch.samples.end());
      }
      const auto expected = sampler.next();
      EXPECT_EQ(joined, expected.samples);
      EXPECT_EQ(loader.state(), expected.after);
    }
  }
}

TEST_F(LoaderTest, RangesRunToTheEndOfTheEpochOrForANumberOfSteps) {
  const CountingData data(50);
  for (const int workers : {0, 3}) {
    Loader loader(data, {.batch = {.local = 10}, .workers = workers});
    std::vector<Samples> first;
    for (const auto& batch : loader.epoch()) first.push_back(batch.samples);
    EXPECT_EQ(first.size(), 5u);
    int steps = 0;
    for (const auto& batch : loader.epoch()) {
      EXPECT_EQ(batch.epoch, 1);
      if (++steps == 2) break;
    }
    for ([[maybe_unused]] const auto& batch : loader.epoch()) ++steps;  // the remaining batches
    EXPECT_EQ(steps, 5);
    std::vector<std::int64_t> epochs;
    for (const auto& batch : loader.steps(7)) epochs.push_back(batch.epoch);
    EXPECT_EQ(epochs, (std::vector<std::int64_t>{2, 2, 2, 2, 2, 3, 3}));
    for ([[maybe_unused]] const auto& batch : loader.steps(0)) FAIL();
    loader.set_epoch(0);
    std::vector<Samples> again;
    for (const auto& batch : loader.epoch()) again.push_back(batch.samples);
    EXPECT_EQ(again, first);
  }
}

TEST_F(LoaderTest, SetEpochToTheCurrentEpochCostsNothing) {
  const CountingData data(100);
  Loader loader(data, {.batch = {.local = 10}});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.set_epoch(epoch);  // as with Python's DistributedSampler
    for (const auto& batch : loader.epoch()) EXPECT_EQ(batch.epoch, epoch);
  }
  EXPECT_EQ(data.num_reads, 30);
}

Transform noise() {
  return in_place([](const Rows& rows, const SampleStreams& random) {
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      auto stream = random(row);
      for (auto& value : rows.row<float>(0, row)) value = static_cast<float>(stream.uniform());
    }
  });
}

TEST_F(LoaderTest, RandomTransformsDependOnSeedEpochAndSampleAlone) {
  const CountingData data(96);
  const auto drawn = [&](int world, int workers, std::uint64_t seed) {
    std::map<std::pair<std::int64_t, std::int64_t>, float> by_sample;  // (epoch, sample)
    for (int rank = 0; rank < world; ++rank) {
      Loader loader(data, {.batch = {.local = 12 / world, .world = world},
                           .rank = rank,
                           .order = {.seed = seed},
                           .workers = workers,
                           .transforms = {noise(), noise()}});
      for (const auto& batch : loader.steps(16)) {
        for (std::int64_t row = 0; row < batch.count(); ++row) {
          by_sample[{batch.epoch, batch.samples[static_cast<std::size_t>(row)]}] =
              batch.input().const_data_ptr<float>()[2 * row];
        }
      }
    }
    return by_sample;
  };
  const auto one = drawn(1, 0, 7);
  EXPECT_EQ(one.size(), 2u * 96);
  EXPECT_EQ(drawn(3, 2, 7), one);
  EXPECT_EQ(drawn(4, 4, 7), one);
  EXPECT_NE(drawn(1, 0, 8), one);
  EXPECT_NE(one.at({0, 5}), one.at({1, 5}));
}

TEST_F(LoaderTest, ATransformMayChangeTheLayout) {
  const CountingData data(40);
  const Transform sum{.apply =
                          [](const Rows& from, const Rows& to, const SampleStreams& /*random*/) {
                            for (std::int64_t row = 0; row < from.count(); ++row) {
                              to.row<double>(0, row)[0] =
                                  from.row<float>(0, row)[0] + from.row<float>(0, row)[1];
                            }
                          },
                      .layout = SampleLayout{{"sum", at::kDouble, {}}}};
  const auto twice = in_place([](const Rows& rows, const SampleStreams& /*random*/) {
    for (auto& value : rows.values<double>(0)) value *= 2;
  });
  const auto plus_one = in_place([](const Rows& rows, const SampleStreams& /*random*/) {
    for (auto& value : rows.values<float>(0)) value += 1;
  });
  for (const int workers : {0, 2}) {
    Loader loader(
        data, {.batch = {.local = 8}, .workers = workers, .transforms = {plus_one, sum, twice}});
    for (const auto& batch : loader.epoch()) {
      for (std::int64_t row = 0; row < 8; ++row) {
        const auto sample = static_cast<double>(batch.samples[static_cast<std::size_t>(row)]);
        EXPECT_EQ(batch["sum"].const_data_ptr<double>()[row], 2 * (2 * sample + 2.5));
      }
      EXPECT_THROW((void)batch.input(), UsageError);
    }
  }
}

TEST_F(LoaderTest, MeasuresWaitReadBytesAndReadyBatches) {
  CountingData data(10'000);
  data.before_sample = [](std::int64_t) { std::this_thread::sleep_for(50us); };
  Trace trace;
  Loader loader(data, {.batch = {.local = 10}, .trace = &trace});
  for (int step = 0; step < 60; ++step) {
    const auto batch = loader.next();
    EXPECT_EQ(batch.metrics.bytes, 10u * (2 * 4 + 8));
    EXPECT_GE(batch.metrics.read, 500us);
    EXPECT_GE(batch.metrics.wait, batch.metrics.read);
  }
  std::int64_t bytes = 0;
  int waits = 0;
  for (const auto& event : trace.drain()) {
    waits += event.kind == EventKind::data_wait ? 1 : 0;
    bytes += event.bytes;
  }
  EXPECT_EQ(waits, 60);
  EXPECT_EQ(bytes, 60 * 160);
  EXPECT_EQ(loader.times().samples, 600);
  ASSERT_TRUE(loader.advice().has_value());  // the loop only reads
  EXPECT_NE(loader.advice()->find("set workers = "), std::string::npos) << *loader.advice();

  // The first worker that reads waits for the other one, so that both have read.
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::thread::id> threads;
  data.before_sample = [&](std::int64_t) {
    std::unique_lock lock(mutex);
    if (threads.insert(std::this_thread::get_id()).second) changed.notify_all();
    changed.wait_for(lock, kLongEnough, [&] { return threads.size() == 2; });
  };
  Loader ahead(data, {.batch = {.local = 10}, .workers = 2, .prefetch = 2, .trace = &trace});
  int ready = 0;
  std::set<int> readers;
  const auto deadline = Deadline::after(kLongEnough);
  while ((ready < 4 || readers.size() < 2) && !deadline.expired()) {
    ready = std::max(ready, ahead.next().metrics.ready);
    for (const auto& event : trace.drain()) {
      if (event.kind == EventKind::data_read) readers.insert(event.index);
    }
    std::this_thread::sleep_for(10ms);  // the workers fill the ring
  }
  EXPECT_GE(ready, 4) << "two per worker";
  EXPECT_EQ(readers, (std::set<int>{0, 1})) << "each worker has its line";
}

TEST_F(LoaderTest, EvaluatesEverySampleOnceInOrder) {
  const CountingData data(11);
  Loader loader(data, evaluation_options({.local = 4}, 0));
  for (int round = 0; round < 2; ++round) {
    Samples seen;
    for (const auto& batch : loader.epoch())
      seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
    EXPECT_EQ(seen, (Samples{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  }
}

}  // namespace
}  // namespace lockstep
