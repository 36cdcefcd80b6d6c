// device_ddp_benchmark LAYERS HEADS WIDTH CONTEXT BATCH VOCABULARY STEPS: what Ddp costs on a GPU.
// Trains two equal GPTs in turns, in one process of one rank: one without Ddp, one with Ddp over
// NCCL, which reduces every bucket although there is only one rank. Prints one line of JSON with
// the median times per step. benchmarks/gpu_against_python/ddp_overhead.py runs it beside PyTorch.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/lockstep.h"
#include "models/gpt.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStepsPerTurn = 10;  // the host runs ahead within a turn, as in training
constexpr int kWarmUpTurns = 2;

struct Shape {
  std::int64_t layers, heads, width, context, batch, vocabulary;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Trained {
 public:
  Trained(const Shape& shape, bool with_ddp)
      : net_(lockstep::models::GptOptions{.vocabulary = shape.vocabulary,
                                          .context = shape.context,
                                          .layers = shape.layers,
                                          .heads = shape.heads,
                                          .width = shape.width}),
        group_(lockstep::World::alone(),
               {.backend = with_ddp ? lockstep::Backend::nccl : lockstep::Backend::automatic}),
        tokens_(torch::randint(shape.vocabulary, {shape.batch, shape.context + 1},
                               torch::device(torch::kCUDA).dtype(torch::kLong))) {
    net_->to(torch::kCUDA);
    if (with_ddp) {
      ddp_.emplace(*net_, group_);
    } else {
      flat_.emplace(*net_, group_);
    }
    optimizer_.emplace(with_ddp ? ddp_->flat() : *flat_, lockstep::AdamWOptions{.lr = 6e-4});
  }

  // Milliseconds per step.
  double turn() {
    torch::cuda::synchronize();
    const auto begin = Clock::now();
    for (int i = 0; i < kStepsPerTurn; ++i) step();
    torch::cuda::synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / kStepsPerTurn;
  }

 private:
  void step() {
    {
      const lockstep::Autocast lower(at::kBFloat16, at::kCUDA);
      const auto logits = net_->forward(tokens_.slice(1, 0, tokens_.size(1) - 1));
      torch::cross_entropy_loss(logits.flatten(0, 1), tokens_.slice(1, 1).flatten()).backward();
    }
    optimizer_->step();
    optimizer_->zero_grad();
  }

  lockstep::models::Gpt net_;
  lockstep::ProcessGroup group_;
  at::Tensor tokens_;
  std::optional<lockstep::Ddp> ddp_;
  std::optional<lockstep::FlatParameters> flat_;
  std::optional<lockstep::AdamW> optimizer_;
};

}  // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    fmt::print("SKIPPED: no GPU on this machine\n");
    return 77;
  }
  if (argc != 8) {
    fmt::print(stderr, "usage: {} LAYERS HEADS WIDTH CONTEXT BATCH VOCABULARY STEPS\n", argv[0]);
    return 2;
  }
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  const Shape shape{number(1), number(2), number(3), number(4), number(5), number(6)};
  Trained plain(shape, false), ddp(shape, true);
  std::vector<double> plain_ms, ddp_ms;
  const int turns = kWarmUpTurns + static_cast<int>(number(7)) / kStepsPerTurn;
  for (int i = 0; i < turns; ++i) {
    const double without = plain.turn(), with = ddp.turn();
    if (i < kWarmUpTurns) continue;
    plain_ms.push_back(without);
    ddp_ms.push_back(with);
  }
  fmt::print("{{\"plain_ms\": {:.4f}, \"ddp_ms\": {:.4f}}}\n", median(plain_ms), median(ddp_ms));
  return 0;
}
