// Random models and steps: shared, frozen and unused parameters, two losses, nested backwards,
// micro-batches, ranks that sit out, every Normalize, one or two gradient buffers. The oracle is
// one process that runs each rank's micro-batches one after the other and sums along the tree;
// results must be bit-identical. Hundreds of models per round when LOCKSTEP_SOAK_SEED is set.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/ddp/test_recomputed_internal.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kWidth = 7;
constexpr int kSteps = 8;

enum class Way { by_rank, by_count, option };
enum class Zeroing { none, to_zero, not_at_all };
enum class LayerKind { plain, optional, nested };

struct Layer {
  LayerKind kind = LayerKind::plain;
  int weight = 0;  // nested layers share theirs with no other layer
  bool has_bias = false;
};

// A random program as a pure function of the seed and a counter, so that the ranks and the single
// process run the same one.
struct Program {
  explicit Program(std::uint64_t the_seed) : seed(the_seed) {
    auto random = stream("program", 0, 0);
    size = std::vector<int>{1, 2, 3, 3, 4, 5}[random.below(6)];
    way = static_cast<Way>(random.below(3));
    accumulate = way == Way::option ? 2 + static_cast<int>(random.below(2)) : 1;
    bucket_bytes = std::vector<std::size_t>{1, 300, 1000, kDefaultBucketBytes}[random.below(4)];
    num_shared = 1 + static_cast<int>(random.below(3));
    num_weights = num_shared;
    for (auto count = 1 + random.below(6); count > 0; --count) {
      Layer layer{.kind = static_cast<LayerKind>(random.below(3)),
                  .has_bias = random.below(2) == 0};
      const bool nested = layer.kind == LayerKind::nested;
      layer.weight = nested
                         ? num_weights++
                         : static_cast<int>(random.below(static_cast<std::uint64_t>(num_shared)));
      layers.push_back(layer);
    }
    gradient_buffers = 1 + static_cast<int>(random.below(2));
  }

  [[nodiscard]] RandomStream stream(std::string_view purpose, int step, int leaf) const {
    return {{seed, random_purpose(purpose)},
            static_cast<std::uint64_t>(step),
            static_cast<std::uint64_t>(leaf)};
  }
  [[nodiscard]] int num_micro_steps(int step) const {
    return way == Way::option ? accumulate
                              : 1 + static_cast<int>(stream("micro-steps", step, 0).below(3));
  }
  [[nodiscard]] Zeroing zeroing(int step) const {
    const auto draw = stream("zeroing", step, 0).below(way == Way::by_rank ? 4 : 2);
    return draw == 0 ? Zeroing::to_zero : draw == 1 ? Zeroing::none : Zeroing::not_at_all;
  }
  // Each rank draws separately, but in some steps no rank has a batch, or none uses a layer.
  [[nodiscard]] bool is_idle(int step) const { return stream("idle", step, 0).below(10) == 0; }
  // Whether start() reduces instead of the last backward.
  [[nodiscard]] bool is_started(int step) const { return stream("started", step, 0).below(3) == 0; }
  [[nodiscard]] bool is_unused(int step, int layer) const {
    return stream("unused", step, layer).below(3) == 0;
  }
  [[nodiscard]] bool is_frozen(int step, int parameter) const {
    return stream("frozen", step, parameter).below(6) == 0;
  }

  std::uint64_t seed;
  int size = 1;
  Way way = Way::by_rank;
  int accumulate = 1;
  std::size_t bucket_bytes = 1;
  int gradient_buffers = 1;
  int num_shared = 1;
  int num_weights = 1;
  std::vector<Layer> layers;
};

struct RandomNet : torch::nn::Module {
  explicit RandomNet(const Program& the_program) : program(the_program) {
    for (int i = 0; i < program.num_weights; ++i) {
      weights.push_back(
          register_parameter("weight" + std::to_string(i), torch::zeros({kWidth, kWidth})));
    }
    for (std::size_t i = 0; i < program.layers.size(); ++i) {
      biases.push_back(register_parameter("bias" + std::to_string(i), torch::zeros({kWidth})));
    }
    head = register_parameter("head", torch::zeros({kWidth, 3}));
    fill(*this, 1);
  }

  void freeze(int step) {
    int number = 0;
    for (auto& parameter : parameters()) {
      parameter.requires_grad_(parameter.is_same(head) || !program.is_frozen(step, number++));
    }
  }

  // The output of all layers; `middle` is the output of one of them.
  at::Tensor forward(at::Tensor x, int step, RandomStream& random, at::Tensor& middle) const {
    for (std::size_t i = 0; i < program.layers.size(); ++i) {
      const auto& layer = program.layers[i];
      const bool skipped = random.below(2) == 0 || program.is_unused(step, static_cast<int>(i));
      if (layer.kind == LayerKind::optional && skipped) continue;
      const Body body = [weight = weights[static_cast<std::size_t>(layer.weight)],
                         bias = layer.has_bias ? biases[i] : at::Tensor()](const at::Tensor& in) {
        const auto out = in.matmul(weight);
        return torch::tanh(bias.defined() ? out + bias : out);
      };
      x = layer.kind == LayerKind::nested ? recomputed(x, body) : body(x);
      if (random.below(2) == 0) middle = x;
    }
    return x.matmul(head);
  }

  Program program;
  Tensors weights;
  Tensors biases;
  at::Tensor head;
};

// One micro-batch of one rank; empty when it has no batch.
struct MicroBatch {
  std::int64_t rows = 0;
  at::Tensor first_loss = {};  // runs backward before the other, unless undefined
  at::Tensor loss = {};
};

std::optional<MicroBatch> micro_batch(const RandomNet& net, int step, int rank, int micro) {
  auto random = net.program.stream("micro-step", step, rank * 100 + micro);
  if (random.below(5) == 0 || net.program.is_idle(step)) return {};
  MicroBatch result{.rows = 1 + static_cast<std::int64_t>(random.below(4))};
  auto x = batch_of(rank, step * 10 + micro, result.rows, kWidth);
  if (random.below(2) == 0) x.requires_grad_();
  at::Tensor middle;
  const bool two_losses = random.below(3) == 0 && net.program.way != Way::option;
  result.loss = net.forward(x, step, random, middle).square().sum();
  if (two_losses && middle.defined() && middle.requires_grad()) {
    result.first_loss = middle.sin().sum();
  }
  return result;
}

void update(torch::nn::Module& net) {
  const torch::NoGradGuard off;
  for (auto& parameter : net.parameters()) {
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.01);
  }
}

void zero(torch::nn::Module& net, Zeroing zeroing) {
  if (zeroing != Zeroing::not_at_all) net.zero_grad(zeroing == Zeroing::none);
}

// The gradients of one rank after its micro-batches of a step, without reduction.
struct Contribution {
  Tensors gradients = {};
  std::vector<bool> touched = {};
  int batches = 0;
  std::int64_t samples = 0;
};

Contribution contribution(RandomNet& net, int step, int rank, const Tensors& old) {
  Contribution own{.gradients = old, .touched = std::vector<bool>(old.size())};
  const auto run_backward = [&](const at::Tensor& loss, bool keep) {
    net.zero_grad();
    loss.backward({}, keep);
    const auto parameters = net.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto gradient = parameters[i].grad();
      if (!gradient.defined()) continue;
      auto& sum = own.gradients[i];
      sum = sum.defined() ? sum + gradient : gradient.clone();
      own.touched[i] = true;
    }
  };
  for (int micro = 0; micro < net.program.num_micro_steps(step); ++micro) {
    const auto batch = micro_batch(net, step, rank, micro);
    if (!batch) continue;
    if (batch->first_loss.defined()) run_backward(batch->first_loss, true);
    run_backward(batch->loss, false);
    ++own.batches;
    own.samples += batch->rows;
  }
  return own;
}

// The averaged gradients of one step of all ranks, and whether should_step() must be true.
bool serial_step(RandomNet& net, int step) {
  const auto& program = net.program;
  const auto old = gradients_of(net);
  std::vector<Contribution> all;
  for (int rank = 0; rank < program.size; ++rank) {
    all.push_back(contribution(net, step, rank, old));
  }
  double weight = 0;
  std::vector<Tensors> of_ranks;
  std::vector<bool> used(old.size());
  for (const auto& own : all) {
    weight += program.way == Way::by_count ? static_cast<double>(own.samples)
              : program.way == Way::option ? own.batches
                                           : std::min(own.batches, 1);
    of_ranks.push_back(own.batches > 0 ? own.gradients : Tensors(old.size()));
    for (std::size_t i = 0; i < used.size(); ++i) used[i] = used[i] || own.touched[i];
  }
  const auto mean = weight > 0 ? serial_mean(of_ranks, weight) : old;
  const auto parameters = net.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad() = used[i] ? mean[i] : old[i];
  }
  return weight > 0;
}

struct Expected {
  bool should_step = false;
  Tensors gradients = {};
};

std::vector<Expected> serial_run(const Program& program) {
  RandomNet net(program);
  std::vector<Expected> steps;
  for (int step = 0; step < kSteps; ++step) {
    net.freeze(step);
    const bool due = serial_step(net, step);
    steps.push_back({due, gradients_of(net)});
    if (due) update(net);
    zero(net, program.zeroing(step));
  }
  return steps;
}

void backward(Ddp& ddp, const Program& program, const std::optional<MicroBatch>& batch) {
  if (!batch) {
    ddp.sit_out();
    return;
  }
  const bool counts = program.way == Way::by_count;
  if (batch->first_loss.defined()) {
    const auto pause = ddp.no_sync();
    if (counts) ddp.count(0);
    batch->first_loss.backward({}, /*retain_graph=*/true);
  }
  if (counts) ddp.count(batch->rows);
  batch->loss.backward();
}

void run(const Program& program, ProcessGroup& group, const std::vector<Expected>& expected) {
  RandomNet net(program);
  Ddp ddp(net, group,
          {.bucket_bytes = program.bucket_bytes,
           .normalize = program.way == Way::by_count ? Normalize::by_count : Normalize::by_rank,
           .accumulate = program.accumulate,
           .gradient_buffers = program.gradient_buffers});
  for (int step = 0; step < kSteps; ++step) {
    net.freeze(step);
    const int last = program.num_micro_steps(step) - 1;
    for (int micro = 0; micro <= last; ++micro) {
      std::optional<Ddp::NoSync> pause;
      const bool reduces_later =
          micro == last ? program.is_started(step) : program.way != Way::option;
      if (reduces_later) pause.emplace(ddp);
      backward(ddp, program, micro_batch(net, step, group.rank(), micro));
    }
    if (program.is_started(step)) ddp.start().wait();
    const auto& wanted = expected[static_cast<std::size_t>(step)];
    ASSERT_EQ(ddp.should_step(), wanted.should_step) << "step " << step;
    ASSERT_TRUE(are_equal(gradients_of(net), wanted.gradients)) << "step " << step;
    if (wanted.should_step) update(net);
    zero(net, program.zeroing(step));
  }
}

TEST(RandomModels, HaveGradientsBitIdenticalToOneProcess) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) : 1;
  const std::uint64_t count = soak ? 500 : test_device().is_cpu() ? 20 : 4;
  for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Program program(seed);
    const auto expected = serial_run(program);
    with_ddp_groups(program.size, [&](ProcessGroup& group) {
      run(program, group, expected);
      if (::testing::Test::HasFailure()) ::printf("seed %lu\n", static_cast<unsigned long>(seed));
    });
  }
}

}  // namespace
}  // namespace lockstep
