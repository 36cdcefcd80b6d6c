// device_ddp_benchmark LAYERS HEADS WIDTH CONTEXT BATCH VOCABULARY STEPS [graph]: what Ddp costs on
// a GPU. Trains two equal GPTs in turns, in one process of one rank: one without Ddp, one with Ddp
// over NCCL, which reduces every bucket although there is only one rank. With "graph" each step of
// both is the replay of a CUDA graph. Prints one line of JSON with the median times per step.
// benchmarks/gpu_against_python/ddp_overhead.py runs it beside PyTorch.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/lockstep.h"
#include "models/gpt.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStepsPerTurn = 10;  // the host runs ahead within a turn, as in training
constexpr int kWarmUpTurns = 2;    // more steps than before the capture of a graph
constexpr double kLr = 6e-4;

struct Shape {
  std::int64_t layers, heads, width, context, batch, vocabulary;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Trained {
 public:
  Trained(const Shape& shape, bool with_ddp, bool as_graph)
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
    optimizer_.emplace(with_ddp ? ddp_->flat() : *flat_, lockstep::AdamWOptions{.lr = kLr});
    if (!as_graph) return;
    optimizer_->set_lr(kLr);
    lockstep::CudaGraphStepOptions options;
    if (with_ddp) options.groups = {group_};
    graph_.emplace([this](const std::vector<at::Tensor>& batch) { return step(batch[0]); },
                   options);
  }

  // Milliseconds per step.
  double turn() {
    torch::cuda::synchronize();
    const auto begin = Clock::now();
    for (int i = 0; i < kStepsPerTurn; ++i) {
      if (graph_) {
        (void)(*graph_)({tokens_});
      } else {
        (void)step(tokens_);
      }
    }
    torch::cuda::synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / kStepsPerTurn;
  }

 private:
  at::Tensor step(const at::Tensor& tokens) {
    at::Tensor loss;
    {
      const lockstep::Autocast lower(at::kBFloat16, at::kCUDA);
      const auto logits = net_->forward(tokens.slice(1, 0, tokens.size(1) - 1));
      loss = torch::cross_entropy_loss(logits.flatten(0, 1), tokens.slice(1, 1).flatten());
      loss.backward();
    }
    optimizer_->step();
    optimizer_->zero_grad();
    return loss;
  }

  lockstep::models::Gpt net_;
  lockstep::ProcessGroup group_;
  at::Tensor tokens_;
  std::optional<lockstep::Ddp> ddp_;
  std::optional<lockstep::FlatParameters> flat_;
  std::optional<lockstep::AdamW> optimizer_;
  std::optional<lockstep::CudaGraphStep> graph_;
};

}  // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    fmt::print("SKIPPED: no GPU on this machine\n");
    return 77;
  }
  const bool as_graph = argc == 9 && std::string_view(argv[8]) == "graph";
  if (argc != 8 && !as_graph) {
    fmt::print(stderr, "usage: {} LAYERS HEADS WIDTH CONTEXT BATCH VOCABULARY STEPS [graph]\n",
               argv[0]);
    return 2;
  }
  const auto number = [&](int i) { return std::atoll(argv[i]); };
  const Shape shape{number(1), number(2), number(3), number(4), number(5), number(6)};
  Trained plain(shape, false, as_graph), ddp(shape, true, as_graph);
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
