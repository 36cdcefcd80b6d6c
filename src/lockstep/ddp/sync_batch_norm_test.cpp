// DdpOptions::sync_batch_norm against one process with the whole batch, in float64: outputs, input
// and parameter gradients and running statistics, with uneven and empty shards; and which calls the
// layers make. All ranks must have bit-identical running statistics.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/collectives/peer_calls.h"
#include "lockstep/ddp/batch_norm_calls_internal.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/train/recompute.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;
using Shards = std::vector<std::int64_t>;  // samples by rank

enum class Layout { rows, sequences, images, images_channels_last, volumes };

constexpr std::int64_t kChannels = 5;

// A BatchNorm between two operations that mix the channels, as members of the user's own class.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(Layout the_layout, bool affine = true, bool tracks = true) : layout(the_layout) {
    const auto options =
        torch::nn::BatchNormOptions(kChannels).affine(affine).track_running_stats(tracks);
    if (layout == Layout::rows || layout == Layout::sequences) {
      norm1 = register_module("norm", torch::nn::BatchNorm1d(options));
    } else if (layout == Layout::volumes) {
      norm3 = register_module("norm", torch::nn::BatchNorm3d(options));
    } else {
      norm2 = register_module("norm", torch::nn::BatchNorm2d(options));
    }
    mix = register_module("mix", torch::nn::Linear(kChannels, kChannels));
  }
  at::Tensor normalize(const at::Tensor& x) {
    if (norm1) return norm1->forward(x);
    return norm2 ? norm2->forward(x) : norm3->forward(x);
  }
  at::Tensor forward(const at::Tensor& x) {
    return mix->forward(normalize(x).transpose(1, -1)).tanh();
  }

  Layout layout;
  torch::nn::BatchNorm1d norm1{nullptr};
  torch::nn::BatchNorm2d norm2{nullptr};
  torch::nn::BatchNorm3d norm3{nullptr};
  torch::nn::Linear mix{nullptr};
};
TORCH_MODULE(Net);

at::Tensor samples_of(Layout layout, std::int64_t count, int step, double mean) {
  std::vector<std::int64_t> sizes{count, kChannels};
  if (layout == Layout::sequences) sizes.push_back(3);
  if (layout == Layout::images || layout == Layout::images_channels_last)
    sizes = {count, kChannels, 3, 2};
  if (layout == Layout::volumes) sizes = {count, kChannels, 2, 1, 3};
  std::int64_t total = 1;
  for (const auto size : sizes) total *= size;
  auto x = (torch::arange(total, torch::kDouble) * 1.7 + 11 * step).sin() * 1.4 +
           (torch::arange(total, torch::kDouble) * 0.31).cos() + mean;
  x = x.reshape(sizes).to(torch::kFloat);  // the oracle gets the rounded values too
  return layout == Layout::images_channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
}

struct Step {
  at::Tensor output;
  at::Tensor input_gradient;
};

Step run(Net& net, const at::Tensor& x) {
  const auto input = x.detach().clone().requires_grad_();
  const auto output = net->forward(input);
  output.square().sum().backward();
  return {output.detach(), input.grad()};
}

// Parameter gradients, then buffers.
Tensors state_of(Net& net) {
  auto all = gradients_of(*net);
  for (const auto& buffer : net->buffers()) all.push_back(buffer.clone());
  return all;
}

// Rounding of float32: a few units of the last place of the largest value, relative to it.
constexpr double kTolerance = 32 * std::numeric_limits<float>::epsilon();

::testing::AssertionResult is_close(const at::Tensor& got, const at::Tensor& expected) {
  if (got.sizes() != expected.sizes()) return ::testing::AssertionFailure() << "other sizes";
  if (got.numel() == 0) return ::testing::AssertionSuccess();
  const auto wanted = expected.to(torch::kCPU, torch::kDouble);
  const double difference =
      (got.to(torch::kCPU, torch::kDouble) - wanted).abs().max().item<double>();
  const double scale = std::max(wanted.abs().max().item<double>(), 1.0);
  if (difference <= kTolerance * scale) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "differs by " << difference << ", scale " << scale << ":\n"
         << got << "\n"
         << expected;
}

// Bitwise equal on all ranks.
void expect_equal_on_all_ranks(const ProcessGroup& group, const at::Tensor& tensor) {
  auto own = tensor.detach().to(torch::kCPU, torch::kDouble).contiguous();
  auto least = own.clone();
  auto most = own.clone();
  group.all_reduce(least, ReduceOp::min).wait();
  group.all_reduce(most, ReduceOp::max).wait();
  EXPECT_TRUE(torch::equal(least, most));
}

struct Case {
  Shards shards;
  double mean = 0;
};

void compare_with_one_process(ProcessGroup& group, Layout layout, const Case& the) {
  Net whole(layout);
  fill(*whole, 1);
  whole->to(torch::kCPU, torch::kDouble);
  Net net(layout);
  fill(*net, 1);
  Ddp ddp(*net, group, {.normalize = Normalize::by_count, .sync_batch_norm = true});
  std::int64_t begin = 0;
  std::int64_t total = 0;
  for (std::size_t rank = 0; rank < the.shards.size(); ++rank) {
    if (static_cast<int>(rank) < group.rank()) begin += the.shards[rank];
    total += the.shards[rank];
  }
  const auto own = the.shards[static_cast<std::size_t>(group.rank())];
  for (int step = 0; step < 2; ++step) {
    const auto x = samples_of(layout, total, step, the.mean);
    const auto expected = run(whole, x.to(torch::kDouble));
    ddp.count(own);
    auto part = x.narrow(0, begin, own);
    if (layout == Layout::images_channels_last) {
      part = part.contiguous(at::MemoryFormat::ChannelsLast);
    }
    const auto got = run(net, part.to(test_device()));
    EXPECT_TRUE(is_close(got.output, expected.output.narrow(0, begin, own)));
    EXPECT_TRUE(is_close(got.input_gradient, expected.input_gradient.narrow(0, begin, own)));
    auto wanted = state_of(whole);
    for (std::size_t i = 0; i < whole->parameters().size(); ++i) {
      wanted[i] /= static_cast<double>(total);
    }
    const auto found = state_of(net);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(is_close(found[i], wanted[i])) << "parameter gradient or buffer " << i;
      expect_equal_on_all_ranks(group, found[i]);
    }
    net->zero_grad();
    whole->zero_grad();
  }
}

class SyncBatchNorm : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, SyncBatchNorm,
                         ::testing::Values(Layout::rows, Layout::sequences, Layout::images,
                                           Layout::images_channels_last, Layout::volumes));

// One group after the other for each number of ranks; on a GPU only with two: each is a process.
void for_each_case(const std::vector<Case>& all, Layout layout) {
  for (std::size_t size = 2; size <= (test_device().is_cpu() ? 4 : 2); ++size) {
    with_ddp_groups(static_cast<int>(size), [&](ProcessGroup& group) {
      for (const auto& the : all) {
        if (the.shards.size() == size) compare_with_one_process(group, layout, the);
      }
    });
  }
}

TEST_P(SyncBatchNorm, EqualsOneProcessWithTheWholeBatch) {
  for_each_case({{{4, 4}},
                 {{5, 2}},
                 {{6, 0}},
                 {{0, 3}},
                 {{3, 4, 2}},
                 {{7, 0, 2}},
                 {{0, 0, 4}},
                 {{2, 2, 2, 2}},
                 {{0, 5, 0, 3}}},
                GetParam());
}

// In float32, x − mean loses 13 of 24 bits if it is formed from sums of x or x².
TEST_P(SyncBatchNorm, LosesNoDigitsToALargeMean) {
  for_each_case({{{5, 3}, 1e4}, {{4, 0, 6}, 1e4}}, GetParam());
}

TEST(SyncBatchNormLayers, KeepChannelsLast) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    Net net(Layout::images_channels_last);
    Ddp ddp(*net, group, {.sync_batch_norm = true});
    const auto x = samples_of(Layout::images_channels_last, 4, 0, 0).requires_grad_();
    const auto y = net->normalize(x);
    EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
    y.square().sum().backward();
    EXPECT_TRUE(x.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

// The oracle: LibTorch's own layer on the concatenated batch.
TEST(SyncBatchNormLayers, WorkWithoutWeightOrRunningStatisticsAndInLowerPrecision) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    for (const bool affine : {true, false}) {
      Net net(Layout::rows, affine, /*tracks=*/!affine);
      Net whole(Layout::rows, affine, !affine);
      fill(*net, 2);
      fill(*whole, 2);
      Ddp ddp(*net, group, {.sync_batch_norm = true});
      const auto x = samples_of(Layout::rows, 8, 0, 0);
      const auto expected = whole->normalize(x).narrow(0, 4 * group.rank(), 4);
      const auto own = x.narrow(0, 4 * group.rank(), 4);
      EXPECT_TRUE(is_close(net->normalize(own), expected));
      const auto lower = net->normalize(own.to(torch::kBFloat16));
      EXPECT_EQ(lower.scalar_type(), torch::kBFloat16);
      EXPECT_TRUE(torch::allclose(lower.to(torch::kFloat), expected, 0.03, 0.03));
    }
  });
}

TEST(SyncBatchNormLayers, AverageRunningStatisticsWithoutAMomentum) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto options = torch::nn::BatchNormOptions(kChannels).momentum(std::nullopt);
    torch::nn::Sequential net{torch::nn::BatchNorm1d(options)};
    torch::nn::BatchNorm1d whole(options);
    Ddp ddp(*net, group, {.sync_batch_norm = true});
    for (int step = 0; step < 3; ++step) {
      const auto x = samples_of(Layout::rows, 6, step, 0);
      (void)whole->forward(x);
      (void)net->forward(x.narrow(0, 3 * group.rank(), 3));
    }
    auto* const norm = net[0]->as<torch::nn::BatchNorm1d>();
    EXPECT_TRUE(is_close(norm->running_mean, whole->running_mean));
    EXPECT_TRUE(is_close(norm->running_var, whole->running_var));
  });
}

TEST(SyncBatchNormLayers, UpdateNothingWhenNoRankHasASample) {
  with_ddp_groups(3, [](ProcessGroup& group) {
    Net net(Layout::images);
    Ddp ddp(*net, group, {.normalize = Normalize::by_count, .sync_batch_norm = true});
    ddp.count(2);
    run(net, samples_of(Layout::images, 2, 0, 0));
    net->zero_grad();
    Tensors before;
    for (const auto& buffer : net->buffers()) before.push_back(buffer.clone());
    ddp.count(0);
    const auto got = run(net, samples_of(Layout::images, 0, 0, 0));
    EXPECT_EQ(got.output.numel(), 0);
    EXPECT_TRUE(are_equal(net->buffers(), before));
    EXPECT_FALSE(ddp.should_step());
  });
}

// Evaluation is local: only one rank runs it. A hang would end with the group's timeout.
TEST(SyncBatchNormLayers, MakeNoCallInEvaluation) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    Net net(Layout::images);
    Ddp ddp(*net, group, {.sync_batch_norm = true});
    net->eval();
    const auto x = samples_of(Layout::images, 3, 0, 0);
    if (group.rank() == 1) {
      Net alone(Layout::images);
      fill(*alone, 3);
      fill(*net, 3);
      alone->eval();
      EXPECT_TRUE(torch::equal(net->forward(x), alone->forward(x)));
    }
  });
}

TEST(SyncBatchNormLayers, AreNormalLayersAfterTheDdp) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    Net net(Layout::images);
    Net alone(Layout::images);
    fill(*net, 1);
    fill(*alone, 1);
    { const Ddp ddp(*net, group, {.sync_batch_norm = true}); }
    if (group.rank() == 0) {
      const auto x = samples_of(Layout::images, 3, 0, 0);
      EXPECT_TRUE(torch::equal(net->forward(x), alone->forward(x)));
    }
  });
}

TEST(SyncBatchNormLayers, SynchronizeUnderNoSync) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    Net net(Layout::images);
    Ddp ddp(*net, group, {.sync_batch_norm = true});
    {
      const auto scope = ddp.no_sync();
      run(net, samples_of(Layout::images, 2, group.rank(), group.rank()));
    }
    expect_equal_on_all_ranks(group, net->norm2->running_mean);
    EXPECT_GT(net->norm2->running_mean.abs().max().item<double>(), 0);
    run(net, samples_of(Layout::images, 2, group.rank(), 0));
  });
}

// Two layers, the second one in a block that is recomputed.
TEST(SyncBatchNormLayers, MakeOneCallPerLayerAndDirection) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(kChannels, kChannels, 1));
    torch::nn::BatchNorm2d first(kChannels);
    torch::nn::BatchNorm2d second(kChannels);
    torch::nn::Sequential net(conv, first, second);
    const auto layers = std::make_shared<SyncedBatchNorms>(*net, group);
    redirect_batch_norms(layers);
    const auto calls = [&] { return PeerCalls(layers->group()).num_entered(group.rank()); };
    const auto at_first = calls();
    const auto x = samples_of(Layout::images, 3, group.rank(), 0);
    for (const bool recomputes : {false, true}) {
      const auto before = calls();
      const auto tracked = second->num_batches_tracked.item<std::int64_t>();
      const auto hidden = first->forward(conv->forward(x));
      const auto y = recomputes ? recompute(second, hidden) : second->forward(hidden);
      EXPECT_EQ(calls(), before + 2);
      const auto mean = second->running_mean.clone();
      y.square().sum().backward();
      EXPECT_EQ(calls(), before + 4);
      EXPECT_TRUE(torch::equal(second->running_mean, mean)) << "updated once";
      EXPECT_EQ(second->num_batches_tracked.item<std::int64_t>(), tracked + 1);
    }
    layers->stop();
    clean_redirections();
    (void)first->forward(x);
    EXPECT_EQ(calls(), at_first + 8) << "a normal layer again";
  });
}

struct OwnNormImpl : torch::nn::Module {
  OwnNormImpl() {
    scale = register_parameter("scale", torch::ones({kChannels}));
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::batch_norm(norm->forward(x), scale, {}, {}, {}, true, 0.1, 1e-5, false);
  }
  at::Tensor scale;
  torch::nn::BatchNorm1d norm{kChannels};
};
TORCH_MODULE(OwnNorm);

TEST(SyncBatchNormErrors, NameLayersThatWouldStayLocal) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    const auto made = [&](torch::nn::Module& module) {
      return message_of([&] { const Ddp ddp(module, group, {.sync_batch_norm = true}); });
    };
    Net bare(Layout::images, /*affine=*/false, /*tracks=*/false);
    EXPECT_TRUE(holds(made(*bare), "the layers norm have neither weight nor running statistics"));
    TestNet without;
    EXPECT_TRUE(holds(made(*without), "the model has no torch::nn::BatchNorm1d"));

    torch::nn::Sequential net{OwnNorm()};
    const Ddp ddp(*net, group, {.sync_batch_norm = true});
    const auto text = message_of([&] { (void)net->forward(samples_of(Layout::rows, 4, 0, 0)); });
    EXPECT_TRUE(holds(text, "batch_norm was called with 0.scale"));
    auto own = net[0]->as<OwnNorm>();
    own->norm = own->replace_module("norm", torch::nn::BatchNorm1d(kChannels));
    const auto after = message_of([&] { (void)net->forward(samples_of(Layout::rows, 4, 0, 0)); });
    EXPECT_TRUE(holds(after, "batch_norm was called with 0.norm.running_mean"));
  });
}

TEST(SyncBatchNormErrors, RefuseTheGradientOfAGradientAndDifferentOptions) {
  with_ddp_groups(2, [](ProcessGroup& group) {
    Net net(Layout::rows);
    {
      const Ddp ddp(*net, group, {.sync_batch_norm = true});
      const auto x = samples_of(Layout::rows, 4, 0, 0).requires_grad_();
      const auto loss = net->normalize(x).pow(3).sum();
      const auto text = message_of([&] {
        (void)torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
      });
      EXPECT_TRUE(holds(text, "layer norm is a SyncBatchNorm"));
    }
    const auto text =
        message_of([&] { const Ddp ddp(*net, group, {.sync_batch_norm = group.rank() == 0}); });
    EXPECT_TRUE(holds(text, "DdpOptions::sync_batch_norm is true on rank 0 and false on rank 1"));
  });
}

}  // namespace
}  // namespace lockstep
