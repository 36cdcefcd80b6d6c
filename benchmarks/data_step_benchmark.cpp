// A plain LibTorch training step, with batches of the loader or with one batch that stays in
// memory:
//   data_step_benchmark resident|loader [workers]
// Reads numbers of steps from standard input and prints the seconds that each took, so that
// benchmarks/data_against_python can run two such processes in turns.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/data/token_windows.h"

namespace {

using namespace lockstep;

constexpr std::int64_t kWidth = 128;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kVocabulary = 512;
constexpr std::int64_t kWindow = 128;
constexpr std::int64_t kBatch = 8;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : norm1(
            register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        norm2(
            register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        attend(register_module("attend", torch::nn::Linear(kWidth, 3 * kWidth))),
        project(register_module("project", torch::nn::Linear(kWidth, kWidth))),
        up(register_module("up", torch::nn::Linear(kWidth, 4 * kWidth))),
        down(register_module("down", torch::nn::Linear(4 * kWidth, kWidth))) {}

  torch::Tensor forward(torch::Tensor x) {
    const auto batch = x.size(0);
    const auto length = x.size(1);
    const auto heads =
        attend(norm1(x)).view({batch, length, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto mixed =
        at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, /*is_causal=*/true);
    x = x + project(mixed.transpose(1, 2).reshape({batch, length, kWidth}));
    return x + down(torch::gelu(up(norm2(x))));
  }

  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear attend, project, up, down;
};
TORCH_MODULE(Block);

struct Transformer : torch::nn::Module {
  Transformer()
      : tokens(register_module("tokens", torch::nn::Embedding(kVocabulary, kWidth))),
        places(register_module("places", torch::nn::Embedding(kWindow, kWidth))),
        head(register_module("head", torch::nn::Linear(kWidth, kVocabulary))) {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      blocks.push_back(register_module("block" + std::to_string(layer), Block()));
    }
  }
  torch::Tensor loss(const torch::Tensor& input, const torch::Tensor& target) {
    auto x = tokens(input) + places(torch::arange(kWindow));
    for (auto& block : blocks) x = block(x);
    return torch::cross_entropy_loss(head(x).view({-1, kVocabulary}), target.view({-1}));
  }

  torch::nn::Embedding tokens, places;
  std::vector<Block> blocks;
  torch::nn::Linear head;
};

}  // namespace

int main(int num_arguments, char** arguments) {
  const bool fed = num_arguments > 1 && std::string(arguments[1]) == "loader";
  torch::manual_seed(1);
  Transformer model;
  torch::optim::SGD optimizer(model.parameters(), 0.01);
  std::vector<std::uint16_t> stream(10'000'000);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    stream[i] = static_cast<std::uint16_t>(i * 2654435761U % kVocabulary);
  }
  const TokenWindows data(tokens_in_memory(std::move(stream)), {.window = kWindow});
  Loader loader(data, {.batch = {.local = kBatch},
                       .order = {.seed = 1},
                       .workers = num_arguments > 2 ? std::stoi(arguments[2]) : 0});
  const auto resident = loader.next();
  for (int steps = 0; std::cin >> steps;) {
    const auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
      const auto batch = fed ? loader.next() : resident;
      optimizer.zero_grad();
      model.loss(batch.input(), batch.target()).backward();
      optimizer.step();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.6f\n", took.count());
    std::fflush(stdout);
  }
  return 0;
}
