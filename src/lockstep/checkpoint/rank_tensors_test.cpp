// Tracked objects with tensors that differ between ranks: byte-equal after stop and resume, and
// with another number of ranks their sum over the ranks is preserved.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

namespace lockstep {
namespace {

// Error feedback as a hook keeps it: its tensors exist from the first step on, and their length is
// the JSON value. Values are small integers, so that sums are exact in any order.
struct Feedback {
  NamedTensors named_tensors() {
    return own.defined() ? NamedTensors{{"shared", shared}} : NamedTensors{};
  }
  NamedTensors rank_tensors() {
    return own.defined() ? NamedTensors{{"own", own}} : NamedTensors{};
  }
  std::string state_json() const { return std::to_string(own.defined() ? own.numel() : 0); }
  void load_state_json(std::string_view json) {
    const auto saved = std::stoi(std::string(json));
    if (saved > 0) make(length > 0 ? length : saved);
  }

  void make(std::int64_t count) {
    own = at::zeros({count}, at::kFloat);
    shared = at::zeros({2}, at::kDouble);
  }
  void train(int rank) {
    if (!own.defined()) make(5);
    own.add_(at::arange(own.numel(), at::kFloat), rank + 1);
    shared.add_(1);
  }

  int length = 0;  // not 0: another length than the saved one
  at::Tensor own;
  at::Tensor shared;
};

struct Resumed {
  std::vector<at::Tensor> own;  // by rank; undefined at the first start
  double steps = 0;             // of the shared tensor
  std::string log;              // of rank 0
  [[nodiscard]] at::Tensor sum() const {
    return std::accumulate(own.begin() + 1, own.end(), own.front());
  }
};

// What each rank has after run.resume(). Then trains `steps` steps and returns in `last` what each
// rank has at the end.
Resumed train(const std::string& folder, int ranks, int steps, Resumed* last = nullptr) {
  Resumed resumed;
  resumed.own.resize(static_cast<std::size_t>(ranks));
  if (last != nullptr) *last = resumed;
  std::mutex mutex;
  with_worlds(ranks, [&](const World& world) {
    const auto at = static_cast<std::size_t>(world.rank());
    const TestLog log;
    Feedback feedback;
    Run run(world, folder, {.log = log.log(world.rank())});
    run.track("feedback", feedback);
    if (run.resume() > 0) {
      const std::lock_guard lock(mutex);
      resumed.own[at] = feedback.own.clone();
      resumed.steps = feedback.shared[0].item<double>();
      if (at == 0) resumed.log = log.text();
    }
    for (int i = 0; i < steps; ++i) {
      feedback.train(world.rank());
      (void)run.end_of_step();
    }
    run.finish();
    if (last == nullptr) return;
    const std::lock_guard lock(mutex);
    last->own[at] = feedback.own.clone();
  });
  return resumed;
}

TEST(RankTensors, EachRankGetsItsOwnBackAndAllGetTheSharedOnes) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const TestFolder folder;
    Resumed saved;
    (void)train(folder.path(), ranks, 3, &saved);
    const auto resumed = train(folder.path(), ranks, 2);
    EXPECT_EQ(resumed.steps, 3);
    for (std::size_t rank = 0; rank < resumed.own.size(); ++rank) {
      EXPECT_TRUE(resumed.own[rank].equal(saved.own[rank])) << rank;
      EXPECT_EQ(resumed.own[rank][1].item<double>(), 3.0 * (static_cast<double>(rank) + 1));
    }
    EXPECT_EQ(resumed.log.find("redistributed"), std::string::npos) << resumed.log;
  }
}

TEST(RankTensors, WithAnotherNumberOfRanksTheSumIsPreservedAndLogged) {
  for (const auto& [before, after] :
       {std::pair{4, 2}, {4, 3}, {3, 1}, {1, 3}, {2, 4}, {3, 4}, {2, 2}}) {
    const TestFolder folder;
    Resumed saved;
    (void)train(folder.path(), before, 2, &saved);
    const auto resumed = train(folder.path(), after, 1);
    EXPECT_TRUE(resumed.sum().equal(saved.sum())) << before << " to " << after;
    EXPECT_EQ(resumed.steps, 2);
    EXPECT_EQ(resumed.log.find("the per-rank tensors of feedback are redistributed, their sums "
                               "over the ranks are preserved") != std::string::npos,
              before != after)
        << resumed.log;
  }
}

TEST(RankTensors, TensorsOfTheWrongShapeAreNamedAndNothingIsLoaded) {
  const TestFolder folder;
  (void)train(folder.path(), 2, 2);
  for (const int ranks : {2, 1}) {
    with_worlds(ranks, [&](const World& world) {
      Feedback feedback;
      feedback.length = 7;
      lockstep::Run run(world, folder.path());
      run.track("feedback", feedback);
      try {
        (void)run.resume();
        ADD_FAILURE() << "resumed";
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find("feedback.own"), std::string::npos)
            << error.what();
      }
      EXPECT_EQ(feedback.shared[0].item<double>(), 0);
    });
  }
}

TEST(RankTensors, TensorsThatCountAsEqualAndDifferAreRefusedByTheFirstSave) {
  struct Counts {
    NamedTensors named_tensors() { return {{"counts", counts}}; }
    at::Tensor counts = at::zeros({3}, at::kFloat);
  };
  for (const bool differ : {false, true}) {
    const TestFolder folder;
    with_worlds(3, [&](const World& world) {
      Counts counts;
      lockstep::Run run(world, folder.path(), {.save_every = 1});
      run.track("counts", counts);
      (void)run.resume();
      counts.counts[2] = differ && world.rank() == 2 ? 7 : 5;
      if (!differ) {
        EXPECT_FALSE(run.end_of_step());
        return;
      }
      try {
        (void)run.end_of_step();
        ADD_FAILURE() << "the first save was not refused";
      } catch (const UsageError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("\"counts\""), std::string::npos) << text;
        EXPECT_NE(text.find("between rank 0 and rank 2"), std::string::npos) << text;
        EXPECT_NE(text.find("rank_tensors()"), std::string::npos) << text;
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
