// Ranks without a batch take part in the calls that the others make in forward and backward: those
// of SyncBatchNorm and the program's own. Random patterns of batches per rank are compared with one
// process in float64 that has all samples; every wait is bounded by the group's timeout. The ranks
// see each other's calls in shared memory or, over TCP, in messages.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_hooks_internal.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/recompute.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;
using SumOverRanks = std::function<void(at::Tensor&)>;

constexpr std::int64_t kWidth = 6;
constexpr int kSteps = 3;

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("linear", linear);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) { return x + norm->forward(linear->forward(x)).tanh(); }
  torch::nn::Linear linear{kWidth, kWidth};
  torch::nn::BatchNorm1d norm{kWidth};
};
TORCH_MODULE(Block);

// Two blocks, one of them recomputed, and a sum over all samples of the global batch.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x, bool recomputes, const SumOverRanks& reduce) {
    auto hidden = first->forward(x);
    auto sum = hidden.detach().to(torch::kDouble).sum(0);
    reduce(sum);
    hidden = hidden + (0.1 * sum).sin().to(hidden.dtype());
    return recomputes ? recompute(second, hidden) : second->forward(hidden);
  }
  Block first;
  Block second;
};
TORCH_MODULE(Net);

class RanksThatSitOut : public ::testing::TestWithParam<Backend> {
 protected:
  static void with_ranks(int size, const std::function<void(ProcessGroup&)>& body) {
    with_ddp_groups(size, body, {.timeout = std::chrono::seconds(20), .backend = GetParam()});
  }
  static void sit_out_of(const std::function<void(ProcessGroup&)>& call,
                         const std::function<void(Ddp&)>& sit_out);
};
INSTANTIATE_TEST_SUITE_P(Backends, RanksThatSitOut, ::testing::Values(Backend::shm, Backend::tcp),
                         [](const auto& each) {
                           return std::string(each.param == Backend::shm ? "shm" : "tcp");
                         });

enum class Part { batch, empty_batch, sits_out };

// A random program, the same for the ranks and for the single process.
struct Pattern {
  explicit Pattern(std::uint64_t the_seed) : seed(the_seed) {
    RandomStream random({seed, random_purpose("pattern")}, 0, 0);
    size = 2 + static_cast<int>(random.below(3));
    micro_batches = 1 + static_cast<int>(random.below(3));
    uses_option = random.below(2) == 0;
    recomputes = random.below(2) == 0;
    hook = random.below(2 * equal_hooks().size());
  }

  struct Share {
    Part part = Part::batch;
    std::int64_t rows = 0;
  };
  [[nodiscard]] Share share(int step, int micro, int rank) const {
    RandomStream random({seed, random_purpose("share")},
                        static_cast<std::uint64_t>(step * 10 + micro),
                        static_cast<std::uint64_t>(rank));
    const auto chance = random.below(10);
    if (chance < 4) return {Part::sits_out, 0};
    if (chance < 5) return {Part::empty_batch, 0};
    return {Part::batch, 2 + static_cast<std::int64_t>(random.below(3))};
  }
  [[nodiscard]] at::Tensor rows(int step, int micro, int rank) const {
    const auto x = batch_of(rank, step * 10 + micro, share(step, micro, rank).rows, kWidth);
    return x.to(torch::kDouble) * 3 + static_cast<double>(seed % 7);
  }
  [[nodiscard]] int num_sitting_out(int step) const {
    int count = 0;
    for (int rank = 0; rank < size; ++rank) {
      bool sits = true;
      for (int micro = 0; micro < micro_batches; ++micro) {
        sits = sits && share(step, micro, rank).part == Part::sits_out;
      }
      count += sits ? 1 : 0;
    }
    return count;
  }

  std::uint64_t seed;
  int size = 2;
  int micro_batches = 1;
  bool uses_option = false;  // accumulate, otherwise no_sync()
  bool recomputes = false;
  std::size_t hook = 0;  // of equal_hooks(); none if there is no such one
};

Tensors values_of(Net& net) {
  Tensors all;
  for (const auto& parameter : net->parameters()) all.push_back(parameter.detach().clone());
  for (const auto& buffer : net->buffers()) all.push_back(buffer.clone());
  return all;
}

void descend(Net& net) {
  const torch::NoGradGuard off;
  for (auto& parameter : net->parameters()) {
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.05);
  }
}

// All samples in one process, after each step.
std::vector<Tensors> serial_run(const Pattern& pattern) {
  Net net;
  fill(*net, 1);
  net->to(torch::kDouble);
  std::vector<Tensors> after;
  for (int step = 0; step < kSteps; ++step) {
    std::int64_t count = 0;
    for (int micro = 0; micro < pattern.micro_batches; ++micro) {
      Tensors parts;
      for (int rank = 0; rank < pattern.size; ++rank) {
        parts.push_back(pattern.rows(step, micro, rank));
      }
      const auto x = torch::cat(parts);
      if (x.size(0) == 0) continue;
      count += x.size(0);
      net->forward(x, false, [](at::Tensor&) {}).square().sum().backward();
    }
    if (count > 0) {
      for (auto& parameter : net->parameters()) {
        parameter.mutable_grad() /= static_cast<double>(count);
      }
      descend(net);
    }
    net->zero_grad();
    after.push_back(values_of(net));
  }
  return after;
}

// Rounding of float64, relative to the largest value: with two rows in all, the variance may be so
// small that three steps amplify it.
constexpr double kTolerance = 1e-9;

::testing::AssertionResult are_close(const Tensors& got, const Tensors& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto wanted = expected[i].to(torch::kDouble);
    const double difference = (got[i].to(torch::kDouble) - wanted).abs().max().item<double>();
    if (difference <= kTolerance * std::max(1.0, wanted.abs().max().item<double>())) continue;
    return ::testing::AssertionFailure() << "tensor " << i << " differs by " << difference << ":\n"
                                         << got[i] << "\nis not\n"
                                         << wanted;
  }
  return ::testing::AssertionSuccess();
}

void micro_batch(Net& net, Ddp& ddp, const Pattern& pattern, ProcessGroup& group, int step,
                 int micro) {
  const auto share = pattern.share(step, micro, group.rank());
  if (share.part == Part::sits_out) return ddp.sit_out();
  ddp.count(share.rows);
  net->forward(pattern.rows(step, micro, group.rank()), pattern.recomputes,
               [&](at::Tensor& sum) { group.all_reduce(sum).wait(); })
      .square()
      .sum()
      .backward();
}

void run(const Pattern& pattern, ProcessGroup& group, const std::vector<Tensors>& expected) {
  Net net;
  fill(*net, 1);
  net->to(torch::kDouble);
  Ddp ddp(*net, group,
          {.normalize = Normalize::by_count,
           .accumulate = pattern.uses_option ? pattern.micro_batches : 1,
           .sync_batch_norm = true});
  if (pattern.hook < equal_hooks().size()) ddp.set_hook(equal_hooks()[pattern.hook]);
  for (int step = 0; step < kSteps; ++step) {
    for (int micro = 0; micro < pattern.micro_batches; ++micro) {
      std::optional<Ddp::NoSync> pause;
      if (!pattern.uses_option && micro + 1 < pattern.micro_batches) pause.emplace(ddp);
      micro_batch(net, ddp, pattern, group, step, micro);
    }
    if (ddp.should_step()) descend(net);
    net->zero_grad();
    ASSERT_EQ(ddp.num_sitting_out(), pattern.num_sitting_out(step)) << "step " << step;
    ASSERT_TRUE(are_close(values_of(net), expected[static_cast<std::size_t>(step)]))
        << "step " << step;
  }
}

TEST_P(RanksThatSitOut, FollowTheOthersInRandomPatterns) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) : 1;
  const std::uint64_t count = soak ? 50 : test_device().is_cpu() ? 8 : 3;
  for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Pattern pattern(seed);
    const auto expected = serial_run(pattern);
    with_ranks(pattern.size, [&](ProcessGroup& group) {
      run(pattern, group, expected);
      if (::testing::Test::HasFailure()) ::printf("seed %lu\n", static_cast<unsigned long>(seed));
    });
  }
}

// The last rank sits out while the others make `call` before their backward.
void RanksThatSitOut::sit_out_of(const std::function<void(ProcessGroup&)>& call,
                                 const std::function<void(Ddp&)>& sit_out) {
  with_ranks(3, [&](ProcessGroup& group) {
    const auto net = weights({"a"});
    Ddp ddp(*net, group);
    if (group.rank() == 2) return sit_out(ddp);
    call(group);
    loss_with((*net)["a"], 3).backward();
    EXPECT_TRUE(is_filled((*net)["a"].grad(), 3));
    EXPECT_EQ(ddp.num_sitting_out(), 1);
  });
}

TEST_P(RanksThatSitOut, ChangeNoResultOfAReduction) {
  const auto reduced = [](ProcessGroup& group, at::Tensor value, ReduceOp op,
                          const CallOptions& options = {}) {
    group.all_reduce(value, op, options).wait();
    return value;
  };
  sit_out_of(
      [&](ProcessGroup& group) {
        const double own = group.rank() + 1;
        const auto of = [&](at::ScalarType dtype) { return torch::full({7}, own, dtype); };
        EXPECT_TRUE(is_filled(reduced(group, of(torch::kFloat), ReduceOp::sum), 3));
        EXPECT_TRUE(is_filled(reduced(group, of(torch::kDouble), ReduceOp::product), 2));
        EXPECT_TRUE(is_filled(reduced(group, of(torch::kHalf), ReduceOp::min), 1));
        EXPECT_TRUE(is_filled(reduced(group, -of(torch::kFloat), ReduceOp::max), -1));
        EXPECT_TRUE(is_filled(reduced(group, -of(torch::kInt), ReduceOp::max), -1));
        EXPECT_TRUE(is_filled(reduced(group, of(torch::kByte), ReduceOp::min), 1));
        EXPECT_TRUE(is_filled(reduced(group, of(torch::kLong), ReduceOp::min), 1));
        EXPECT_TRUE(is_filled(
            reduced(group, of(torch::kFloat), ReduceOp::weighted_average, {.weight = 1}), 1.5));
        auto value = of(torch::kFloat);
        group.broadcast(value, 1).wait();
        EXPECT_TRUE(is_filled(value, 2));
        group.reduce(value, 0).wait();
        EXPECT_TRUE(is_filled(value, group.rank() == 0 ? 4 : 2));
        auto part = torch::zeros({2});
        group.reduce_scatter(part, torch::ones({6})).wait();
        EXPECT_TRUE(is_filled(part, 2));
        group.barrier({.name = "before backward"}).wait();
      },
      [](Ddp& ddp) { ddp.sit_out(); });
}

TEST_P(RanksThatSitOut, NameACallThatNeedsTheirData) {
  const auto expect_refused = [](const std::function<void(ProcessGroup&)>& call,
                                 const std::string& name, const std::string& remedy) {
    with_ranks(2, [&](ProcessGroup& group) {
      const auto net = weights({"a"});
      Ddp ddp(*net, group);
      if (group.rank() == 0) {
        const auto text = message_of([&] { ddp.sit_out(); });
        EXPECT_TRUE(holds(text, name));
        EXPECT_TRUE(holds(text, remedy));
      } else {
        EXPECT_TRUE(holds(message_of([&] { call(group); }), "rank 0 has left group"));
      }
    });
  };
  expect_refused(
      [](ProcessGroup& group) {
        auto loss = torch::ones({1});
        group.all_reduce(loss, ReduceOp::average, {.name = "loss"}).wait();
      },
      "all_reduce(average, 1 × float32, \"loss\")", "ReduceOp::weighted_average");
  expect_refused(
      [](ProcessGroup& group) {
        auto all = torch::zeros({2});
        group.all_gather(all, torch::zeros({1})).wait();
      },
      "all_gather(1 × float32)", "");
  expect_refused(
      [](ProcessGroup& group) {
        auto value = torch::zeros({1});
        group.broadcast(value, 0).wait();
      },
      "broadcast(1 × float32 from rank 0)", "");
}

// A generator and a discriminator with BatchNorm in one graph: the rank that sits out calls
// sit_out() of one Ddp after the other, while the others alternate between the layers of both.
TEST_P(RanksThatSitOut, FollowAllModelsOfAGraph) {
  with_ranks(3, [](ProcessGroup& group) {
    Block generator;
    Block discriminator;
    fill(*generator, 1);
    fill(*discriminator, 2);
    Ddp first(*generator, group, {.sync_batch_norm = true});
    Ddp second(*discriminator, group, {.sync_batch_norm = true});
    for (int step = 0; step < 3; ++step) {
      if (group.rank() == step) {
        first.sit_out();
        second.sit_out();
      } else {
        discriminator->forward(generator->forward(batch_of(group.rank(), step)))
            .square()
            .sum()
            .backward();
      }
      EXPECT_TRUE(first.should_step());
      EXPECT_TRUE(second.should_step());
      for (auto block : {generator, discriminator}) {
        auto least = block->norm->running_mean.clone();
        group.all_reduce(least, ReduceOp::min).wait();
        EXPECT_TRUE(torch::equal(least, block->norm->running_mean));
        EXPECT_EQ(block->norm->num_batches_tracked.item<std::int64_t>(), step + 1);
        block->zero_grad();
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
