// The loader's guarantees when batches are kept, when it is stopped, and when samples are
// unreadable.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/test_counting_data_internal.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Samples = std::vector<std::int64_t>;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error.kind()) + ": " + error.what();
  }
  return "nothing was thrown";
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
  std::set<const void*> addresses;
  Batch batch;
  for (int step = 0; step < 50; ++step) {
    batch = loader.next();
    addresses.insert(batch.input().const_data_ptr());
  }
  EXPECT_LE(addresses.size(), 4u);  // the buffers: two read ahead, two with the caller
}

TEST_F(LoaderTest, ADeviceThatThisProcessDoesNotSeeIsRefusedWithTheFix) {
  const CountingData data(10);
  const auto said = message_of([&] {
    const Loader loader(data, {.batch = {.local = 2}, .device = at::Device(at::kCUDA, 99)});
  });
  EXPECT_NE(said.find("cuda:99"), std::string::npos) << said;
  EXPECT_NE(said.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << said;
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

TEST_F(LoaderTest, ItsDestructorWaitsForReadsInProgressAndForNoOthers) {
  CountingData data(10'000);
  data.before_sample = [](std::int64_t) { std::this_thread::sleep_for(20ms); };
  {
    Loader loader(data, {.batch = {.local = 1}, .workers = 2, .prefetch = 1000});
    (void)loader.next();
  }
  // Usually 4 of 2002 requested. The limit is 5 s of reads, for a thread that does not run at once.
  EXPECT_LE(data.num_reads, 500);
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
    const auto next = [&] {
      const auto batch = loader.next();
      seen.insert(seen.end(), batch.samples.begin(), batch.samples.end());
    };
    for (int batch = 0; batch < 6; ++batch) next();
    EXPECT_EQ(message_of(next),
              "usage: sample 13 of counting.bin (epoch 0): counting.bin is damaged at byte 104");
    EXPECT_EQ(loader.state().position, 12);
    damaged = false;
    next();
    EXPECT_EQ(message_of(next),
              "system: sample 14 of counting.bin (epoch 0): cannot read counting.bin "
              "at byte 112: Input/output error");
    unreadable = false;
    for (int batch = 0; batch < 3; ++batch) next();
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
  EXPECT_NE(message_of([&] { (void)loader.next(); }).find("no worker has read the batch"),
            std::string::npos);
  stuck = false;
}

TEST_F(LoaderTest, RefusesInvalidOptions) {
  const CountingData data(30);
  EXPECT_THROW(Loader(data, {.workers = -1}), UsageError);
  EXPECT_THROW(Loader(data, {.prefetch = 0}), UsageError);
  EXPECT_THROW(Loader(data, {.batch = {.local = 31}}), UsageError);
  EXPECT_THROW(Loader(data, {.batch = {.local = 1, .world = 2}, .rank = 2}), UsageError);
  EXPECT_THROW(Loader(data, {.batch = {.local = 0}}), UsageError);
  Loader loader(data, {.batch = {.local = 5}});
  EXPECT_THROW(loader.restore({data.id() + 1, 0, 0, 0}), UsageError);
}

// The loop of docs/data.md, stopped after every step and resumed by a new loader.
TEST_F(LoaderTest, EpochsCountedByTheStateAreEachTrainedOnce) {
  const CountingData data(30);
  std::vector<std::int64_t> seen(30);
  std::string state;
  for (bool stop = true; stop;) {
    Loader loader(data, {.batch = {.local = 5}, .order = {.seed = 3}});
    if (!state.empty()) loader.load_state_json(state);
    stop = false;
    while (!stop && loader.state().epoch < 3) {
      for (const auto& batch : loader.epoch()) {
        for (const auto sample : batch.samples) ++seen[static_cast<std::size_t>(sample)];
        stop = true;
        break;
      }
    }
    state = loader.state_json();
  }
  EXPECT_EQ(seen, std::vector<std::int64_t>(30, 3));
}

TEST_F(LoaderTest, NamesAForgottenRankOrWorld) {
  const CountingData data(30);
  const auto no_rank =
      message_of([&] { Loader loader(data, {.batch = {.local = 5, .world = 2}}); });
  EXPECT_NE(no_rank.find("set .rank = world.rank()"), std::string::npos) << no_rank;
  const auto no_world =
      message_of([&] { Loader loader(data, {.batch = {.local = 5}, .rank = 1}); });
  EXPECT_NE(no_world.find("LoaderOptions::rank is 1, but batch.world is 1"), std::string::npos)
      << no_world;
  EXPECT_NE(no_world.find("derive_batch_sizes({.world = world.size(), .local = 5})"),
            std::string::npos)
      << no_world;
}

}  // namespace
}  // namespace lockstep
