#include "lockstep/data/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/testing/watchdog.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Samples = std::vector<std::int64_t>;

/// Sample i is "input": the floats i, i + 0.5 and "target": −i, so that every row tells which it
/// is.
class CountingData : public Dataset {
 public:
  explicit CountingData(std::int64_t size) : size_(size) {}

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override {
    ++num_reads;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      before_sample(indices[i]);
      const auto row = static_cast<std::int64_t>(i);
      rows.row<float>(0, row)[0] = static_cast<float>(indices[i]);
      rows.row<float>(0, row)[1] = static_cast<float>(indices[i]) + 0.5F;
      rows.row<std::int64_t>(1, row)[0] = -indices[i];
    }
  }
  [[nodiscard]] std::uint64_t id() const override { return 0xC0; }
  [[nodiscard]] std::string name() const override { return "counting.bin"; }

  std::function<void(std::int64_t)> before_sample = [](std::int64_t) {};
  mutable std::atomic<int> num_reads = 0;

 private:
  std::int64_t size_;
  SampleLayout layout_{{"input", at::kFloat, {2}}, {"target", at::kLong, {}}};
};

void expect_right(const Batch& batch) {
  ASSERT_EQ(batch.input().sizes(), (std::vector<std::int64_t>{batch.count(), 2}));
  ASSERT_EQ(batch.target().sizes(), (std::vector<std::int64_t>{batch.count()}));
  for (std::int64_t row = 0; row < batch.count(); ++row) {
    const auto sample = batch.samples[static_cast<std::size_t>(row)];
    ASSERT_EQ(batch.input().const_data_ptr<float>()[2 * row], static_cast<float>(sample));
    ASSERT_EQ(batch.input().const_data_ptr<float>()[2 * row + 1],
              static_cast<float>(sample) + 0.5F);
    ASSERT_EQ(batch.target().const_data_ptr<std::int64_t>()[row], -sample);
  }
}

class LoaderTest : public ::testing::Test {
  testing::Watchdog watchdog_{120s, [] { return std::string("a loader test"); }};
};

TEST_F(LoaderTest, GivesTheSamplersStreamWhateverTheNumberOfWorkers) {
  CountingData data(103);
  std::mutex mutex;
  std::mt19937 jitter(1);
  data.before_sample = [&](std::int64_t) {  // so that batches are done out of order
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

TEST_F(LoaderTest, StoppedAtTwoHundredPointsAndGoingOnElsewhereNothingIsLostOrRepeated) {
  const CountingData data(1009);  // a prime: no batch fits
  for (const auto tail : {Tail::drop, Tail::uneven}) {
    const BatchSizes alone{.local = 12, .world = 1};
    Loader unbroken(data, {.batch = alone, .order = {.seed = 6}, .tail = tail});
    std::mt19937 random(99);
    SamplerState state = unbroken.state();
    for (int stop = 0; stop < 200; ++stop) {
      const auto batch = change_world(
          alone, std::vector{1, 2, 4, 3}[static_cast<std::size_t>(stop % 4)], Keep::global);
      const int workers = static_cast<int>(random() % 5);
      const int steps = static_cast<int>(random() % 9);  // none at all, too
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
      state = ranks.front()->state();  // and the loaders end with batches read ahead
    }
    EXPECT_GT(state.epoch, 5);
  }
}

TEST_F(LoaderTest, EveryRankRunsTheSameNumberOfBatchesAndAShareMayBeEmpty) {
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

TEST_F(LoaderTest, RangesRunToTheEndOfTheEpochOrForSoManySteps) {
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
    for ([[maybe_unused]] const auto& batch : loader.epoch()) ++steps;  // the rest of it
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

TEST_F(LoaderTest, SetEpochWhereItStandsCostsNothing) {
  const CountingData data(100);
  Loader loader(data, {.batch = {.local = 10}});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.set_epoch(epoch);  // as people are used to
    for (const auto& batch : loader.epoch()) EXPECT_EQ(batch.epoch, epoch);
  }
  EXPECT_EQ(data.num_reads, 30);
}

TEST_F(LoaderTest, ABatchThatIsKeptIsNeverWrittenAgain) {
  const CountingData data(1000);
  for (const int workers : {0, 2}) {
    Loader loader(data, {.batch = {.local = 10}, .workers = workers});
    std::vector<Batch> kept;
    for (const auto& batch : loader.steps(60)) kept.push_back(batch);
    std::vector<at::Tensor> only_tensors;
    for (const auto& batch : kept) expect_right(batch);
    const auto sample = kept[0].samples[0];
    const auto tensor = kept[0].input();
    kept.clear();
    for (int step = 0; step < 20; ++step) (void)loader.next();
    EXPECT_EQ(tensor.const_data_ptr<float>()[0], static_cast<float>(sample));
  }
}

TEST_F(LoaderTest, ABatchThatIsDroppedGivesItsMemoryBack) {
  const CountingData data(1000);
  Loader loader(data, {.batch = {.local = 10}, .workers = 1});
  std::set<const void*> places;
  Batch batch;
  for (int step = 0; step < 50; ++step) {
    batch = loader.next();
    places.insert(batch.input().const_data_ptr());
  }
  EXPECT_LE(places.size(), 4u);  // the slots: two read ahead, two with the caller
}

TEST_F(LoaderTest, ReadsNoFurtherAheadThanTheRingIsLong) {
  const CountingData data(10'000);
  Loader loader(data, {.batch = {.local = 10}, .workers = 2, .prefetch = 3});
  (void)loader.next();
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(data.num_reads, 1 + 2 * 3 + 1);
}

TEST_F(LoaderTest, StopsAtAnyPoint) {
  CountingData data(10'000);
  data.before_sample = [](std::int64_t) { std::this_thread::sleep_for(100us); };
  for (int taken = 0; taken < 20; ++taken) {
    Loader loader(data, {.batch = {.local = 4}, .workers = 3});
    for (int step = 0; step < taken; ++step) (void)loader.next();
    if (taken % 3 == 0) loader.set_epoch(taken);
    if (taken % 4 == 0) (void)loader.next();
  }
}

TEST_F(LoaderTest, ItsEndWaitsForReadsUnderWayAndForNoOthers) {
  CountingData data(10'000);
  data.before_sample = [](std::int64_t) { std::this_thread::sleep_for(20ms); };
  {
    Loader loader(data, {.batch = {.local = 1}, .workers = 2, .prefetch = 50});
    (void)loader.next();
  }
  EXPECT_LE(data.num_reads, 30);  // of 102 ordered, which would take a second
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

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error.kind()) + ": " + error.what();
  }
  return "nothing was thrown";
}

TEST_F(LoaderTest, AnErrorNamesTheSampleAndTheBatchIsReadAgainNextTime) {
  CountingData data(40);
  std::atomic<bool> damaged = true;
  std::atomic<bool> unreadable = true;
  data.before_sample = [&](std::int64_t sample) {
    if (sample == 13 && damaged) throw UsageError("counting.bin is damaged at byte 104");
    if (sample == 14 && unreadable) throw SystemError("cannot read counting.bin at byte 112", EIO);
  };
  for (const int workers : {0, 3}) {
    damaged = unreadable = true;
    LoaderOptions options{.batch = {.local = 2, .accumulation = 2}, .workers = workers};
    options.order.kind = OrderKind::sequential;
    Loader loader(data, options);
    Samples seen;
    const auto take = [&] {
      const auto batch = loader.next();
      seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
    };
    for (int batch = 0; batch < 6; ++batch) take();
    EXPECT_EQ(message_of(take),
              "usage: sample 13 of counting.bin (epoch 0): counting.bin is damaged at byte 104");
    EXPECT_EQ(loader.state().position, 12);
    damaged = false;
    take();
    EXPECT_EQ(message_of(take),
              "system: sample 14 of counting.bin (epoch 0): cannot read counting.bin "
              "at byte 112: Input/output error");
    unreadable = false;
    for (int batch = 0; batch < 3; ++batch) take();
    EXPECT_EQ(seen.size(), 20u);
    for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<std::int64_t>(i));
  }
}

TEST_F(LoaderTest, SkipsAsManyUnreadableSamplesAsItMayAndNoMore) {
  CountingData data(30);
  data.before_sample = [](std::int64_t sample) {
    if (sample % 10 == 3) throw std::runtime_error("not a picture");
  };
  for (const int workers : {0, 2}) {
    LoaderOptions options{.batch = {.local = 5}, .workers = workers, .skip_up_to = 2};
    options.order.kind = OrderKind::sequential;
    Loader loader(data, options);
    auto batch = loader.next();
    expect_right(batch);
    EXPECT_EQ(batch.samples, (Samples{0, 1, 2, 4}));
    EXPECT_EQ(batch.skipped, (Samples{3}));
    for (int step = 0; step < 3; ++step) batch = loader.next();
    EXPECT_EQ(loader.num_skipped(), 2);
    EXPECT_EQ(message_of([&] { (void)loader.next(); }),
              "usage: sample 23 of counting.bin (epoch 0): not a picture");
  }
}

TEST_F(LoaderTest, AReadThatNeverEndsIsReportedInTime) {
  CountingData data(30);
  std::atomic<bool> stuck = true;
  data.before_sample = [&](std::int64_t) {
    while (stuck) std::this_thread::sleep_for(1ms);
  };
  Loader loader(data, {.batch = {.local = 5}, .workers = 1, .limit = 0s});
  EXPECT_NE(message_of([&] { (void)loader.next(); }).find("no worker could read a batch in time"),
            std::string::npos);
  stuck = false;
}

class Recorder final : public TraceSink {
 public:
  void record(const TraceSpan& span) noexcept override { ++spans[std::string(span.name)]; }
  void record(const TraceCounter& counter) noexcept override {
    last[std::string(counter.name)] = counter.value;
  }
  std::map<std::string, int> spans;
  std::map<std::string, double> last;
};

TEST_F(LoaderTest, MeasuresWaitReadBytesAndWhatLiesReady) {
  CountingData data(10'000);
  data.before_sample = [](std::int64_t) { std::this_thread::sleep_for(50us); };
  Recorder recorder;
  Loader loader(data, {.batch = {.local = 10}, .trace = &recorder});
  for (int step = 0; step < 60; ++step) {
    const auto batch = loader.next();
    EXPECT_EQ(batch.metrics.bytes, 10u * (2 * 4 + 8));
    EXPECT_GE(batch.metrics.read, 500us);
    EXPECT_GE(batch.metrics.wait, batch.metrics.read);
  }
  EXPECT_EQ(recorder.spans["data wait"], 60);
  EXPECT_EQ(recorder.last["data bytes"], 60 * 160);
  EXPECT_EQ(loader.times().samples, 600);
  ASSERT_TRUE(loader.advice().has_value());  // nothing but reading
  EXPECT_NE(loader.advice()->find("set workers = "), std::string::npos) << *loader.advice();

  Loader ahead(data, {.batch = {.local = 10}, .workers = 2, .prefetch = 2});
  (void)ahead.next();
  std::this_thread::sleep_for(100ms);
  EXPECT_GE(ahead.next().metrics.ready, 4);
}

TEST_F(LoaderTest, RefusesNumbersThatCannotBe) {
  const CountingData data(30);
  EXPECT_THROW(Loader(data, {.workers = -1}), UsageError);
  EXPECT_THROW(Loader(data, {.prefetch = 0}), UsageError);
  EXPECT_THROW(Loader(data, {.batch = {.local = 31}}), UsageError);
  EXPECT_THROW(Loader(data, {.batch = {.local = 1, .world = 2}, .rank = 2}), UsageError);
  EXPECT_THROW(Loader(data, {.batch = {.local = 0}}), UsageError);
  Loader loader(data, {.batch = {.local = 5}});
  EXPECT_THROW(loader.restore({data.id() + 1, 0, 0, 0}), UsageError);
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
