// The statements of room train compared with LibTorch: optimizers over 25 million parameters,
// attention in 16 bits on the CPU. One thread. The candidates take turns and the median of the
// ratios counts, so that other load of the machine affects all of them equally.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/attention.h"
#include "lockstep/train/clip.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/sgd.h"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;
using Tensors = std::vector<at::Tensor>;

double milliseconds_of(const std::function<void()>& action) {
  const auto begin = Clock::now();
  action();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Way {
  std::string name;
  std::function<void()> run;
};

// The times of the candidates, which take turns; the first is lockstep's.
void compare(const std::string& title, const std::vector<Way>& ways, int rounds, double bytes = 0) {
  std::vector<std::vector<double>> times(ways.size());
  for (const auto& way : ways) way.run();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      times[i].push_back(milliseconds_of(ways[i].run));
    }
  }
  fmt::print("{}\n", title);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::vector<double> ratios;
    for (int round = 0; round < rounds; ++round) {
      const auto at = static_cast<std::size_t>(round);
      ratios.push_back(times[i][at] / times[0][at]);
    }
    const auto best = *std::min_element(times[i].begin(), times[i].end());
    fmt::print("  {:44} {:9.2f} ms (best {:.2f})  {:6.2f} ×", ways[i].name, median(times[i]), best,
               median(ratios));
    if (bytes > 0) fmt::print("  {:5.1f} GB/s", bytes / median(times[i]) * 1e-6);
    fmt::print("\n");
  }
}

// 50 matrices of half a million parameters.
struct ManyImpl : torch::nn::Module {
  ManyImpl() {
    for (int i = 0; i < 50; ++i) {
      register_parameter("weight" + std::to_string(i), torch::randn({500, 1000}));
    }
  }
};

struct Model {
  ManyImpl module;
  Tensors parameters = module.parameters();

  explicit Model(bool gradients_of_their_own = true) {
    if (!gradients_of_their_own) return;
    for (auto& parameter : parameters) parameter.mutable_grad() = torch::randn_like(parameter);
  }
};

struct FusedState {
  Tensors values, gradients, averages, squares, steps;

  explicit FusedState(const Model& model) {
    for (const auto& parameter : model.parameters) {
      values.push_back(parameter.detach());
      gradients.push_back(parameter.grad());
      averages.push_back(torch::zeros_like(parameter));
      squares.push_back(torch::zeros_like(parameter));
      steps.push_back(torch::zeros({}));
    }
  }
};

void optimizers() {
  ProcessGroup group(World::alone());
  Model ours;
  FlatParameters flat(ours.module, group);
  Model other;
  FusedState fused(other);
  const double count = 25e6;

  // The reference: a copy, which reads one byte per byte written, of as many bytes as the pass
  // moves (4 read, 3 written).
  Tensors from, to;
  for (int i = 0; i < 4; ++i) {
    from.push_back(torch::randn({25'000'000}));
    to.push_back(torch::zeros({25'000'000}));
  }
  const Way copy{"copy of the same bytes", [&] {
                   for (int i = 0; i < 3; ++i) {
                     const auto at = static_cast<std::size_t>(i);
                     std::memcpy(to[at].data_ptr(), from[at].data_ptr(), from[at].nbytes());
                   }
                   std::memcpy(to[3].data_ptr(), from[3].data_ptr(), from[3].nbytes() / 2);
                 }};
  {
    AdamW optimizer(flat, {.lr = 1e-4});
    torch::optim::AdamW stock(other.parameters, torch::optim::AdamWOptions(1e-4));
    compare("AdamW, 25 million parameters, 28 bytes each",
            {{"lockstep::AdamW", [&] { optimizer.step(); }},
             {"at::_fused_adamw_",
              [&] {
                at::_foreach_add_(fused.steps, 1);
                at::_fused_adamw_(fused.values, fused.gradients, fused.averages, fused.squares, {},
                                  fused.steps, 1e-4, 0.9, 0.999, 0.01, 1e-8, false, false);
              }},
             {"torch::optim::AdamW", [&] { stock.step(); }},
             copy},
            15, 28 * count);
  }
  {
    SGD optimizer(flat, {.lr = 1e-4, .momentum = 0.9});
    torch::optim::SGD stock(other.parameters, torch::optim::SGDOptions(1e-4).momentum(0.9));
    compare("SGD with momentum, 25 million parameters, 20 bytes each",
            {{"lockstep::SGD", [&] { optimizer.step(); }},
             {"at::_fused_sgd_",
              [&] {
                at::_fused_sgd_(fused.values, fused.gradients, fused.averages, 0, 0.9, 1e-4, 0,
                                false, false, false);
              }},
             {"torch::optim::SGD", [&] { stock.step(); }}},
            15, 20 * count);
  }
  GradScaler scaler;
  auto found = torch::zeros({1});
  const auto one = torch::ones({1});
  compare("unscale, 25 million gradients, 8 bytes each",
          {{"lockstep::GradScaler",
            [&] {
              scaler.unscale(flat);
              scaler.update();
            }},
           {"at::_amp_foreach_non_finite_check_and_unscale_",
            [&] {
              at::_amp_foreach_non_finite_check_and_unscale_(fused.gradients, found, one * 0.5F);
            }}},
          15, 8 * count);
  compare("clip_grad_norm, 25 million gradients, read and scaled",
          {{"lockstep::clip_grad_norm", [&] { clip_grad_norm(flat, 1e-3); }},
           {"torch::nn::utils::clip_grad_norm_",
            [&] { torch::nn::utils::clip_grad_norm_(other.parameters, 1e-3); }}},
          15);
}

void attentions() {
  const auto ways_of = [](std::int64_t batch, std::int64_t heads, std::int64_t length,
                          std::int64_t size) {
    const auto run = [=](at::ScalarType dtype, AttentionPrecision precision) {
      const auto make = [&] {
        return torch::randn({batch, heads, length, size}).to(dtype).set_requires_grad(true);
      };
      return [=, query = make(), key = make(), value = make()] {
        const auto y = attention(query, key, value, {.is_causal = true, .precision = precision});
        (void)torch::autograd::grad({y.sum()}, {query, key, value});
      };
    };
    compare(
        fmt::format("attention {} × {} × {} × {}, forward and backward", batch, heads, length,
                    size),
        {{"bfloat16 given, computed in float32", run(at::kBFloat16, AttentionPrecision::automatic)},
         {"bfloat16 as LibTorch computes it", run(at::kBFloat16, AttentionPrecision::as_given)},
         {"float32 given", run(at::kFloat, AttentionPrecision::automatic)}},
        5);
  };
  ways_of(8, 4, 128, 32);
  ways_of(4, 8, 256, 64);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  torch::manual_seed(1);
  optimizers();
  attentions();
}
