// One rank of hosts_benchmark: does communication move while one long layer computes?
//   layers_rank ANSWER MILLISECONDS STEPS
// The model has two linear layers with gradients of 25 MiB. Between them a layer without parameters
// computes for about MILLISECONDS in backward: no gradient arrives meanwhile, so the training
// thread does not enter the library. Steps with and without (no_sync) communication take turns.
// Rank 0 writes, per step, in milliseconds and as the maximum over ranks: backward until the second
// gradient, with and without communication; the long layer; the first bucket's end after the second
// gradient (negative: before it).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/launch/init.h"

namespace {

using namespace lockstep;
using Clock = StepClock;

constexpr std::int64_t kWidth = 2560;  // a weight of 2560 x 2560 float32 has 25 MiB

double milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

void multiply(std::int64_t times) {
  static const auto matrix = torch::randn({256, 256});
  static auto result = torch::empty({256, 256});
  for (std::int64_t i = 0; i < times; ++i) at::mm_out(result, matrix, matrix);
}

// The identity; its backward computes.
struct LongLayer : torch::autograd::Function<LongLayer> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            std::int64_t work) {
    context->saved_data["work"] = work;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto begin = Clock::now();
    multiply(context->saved_data["work"].toInt());
    last = milliseconds(Clock::now() - begin);
    return {gradients[0], at::Tensor()};
  }
  static inline double last = 0;  // of the last backward
};

struct TwoLayers : torch::nn::Module {
  TwoLayers()
      : first(register_module("first", torch::nn::Linear(options()))),
        second(register_module("second", torch::nn::Linear(options()))) {}
  static torch::nn::LinearOptions options() {
    return torch::nn::LinearOptions(kWidth, kWidth).bias(false);
  }
  at::Tensor forward(const at::Tensor& x, std::int64_t work) {
    return second->forward(LongLayer::apply(first->forward(x), work));
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
};

std::vector<double> max_over_ranks(const ProcessGroup& group, std::vector<double> values) {
  auto tensor = torch::tensor(values, torch::kFloat64);
  group.all_reduce(tensor, ReduceOp::max).wait();
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

// Multiplications that take `wanted` milliseconds while the other rank multiplies too.
std::int64_t calibrated(const ProcessGroup& group, double wanted) {
  constexpr std::int64_t kTried = 200;
  multiply(kTried);
  group.barrier().wait();
  const auto begin = Clock::now();
  multiply(kTried);
  const double each = milliseconds(Clock::now() - begin) / double{kTried};
  const auto slowest = max_over_ranks(group, {-each});  // the fastest rank must compute so long
  return static_cast<std::int64_t>(wanted / -slowest.front()) + 1;
}

void measure(const std::string& answer, double wanted, int steps) {
  const auto world = init();
  const ProcessGroup group(world);
  torch::manual_seed(1);
  const auto model = std::make_shared<TwoLayers>();
  Ddp ddp(*model, group);
  Clock::time_point second_gradient;
  model->first->weight.register_hook(
      [&](const at::Tensor& /*gradient*/) { second_gradient = Clock::now(); });
  const auto x = torch::randn({1, kWidth});
  const auto work = calibrated(group, wanted);
  const auto backward = [&] {
    const auto loss = model->forward(x, work).sum();
    group.barrier().wait();
    const auto begin = Clock::now();
    loss.backward();
    return milliseconds(second_gradient - begin);
  };
  constexpr int kWarmUp = 2;
  std::vector<std::string> rows;
  for (int step = 0; step < kWarmUp + steps; ++step) {
    double without = 0;
    {
      const auto scope = ddp.no_sync();
      without = backward();
    }
    for (auto& parameter : model->parameters()) parameter.mutable_grad().zero_();
    const double with = backward();
    auto buckets = ddp.record().buckets;
    if (buckets.size() != 2) {
      throw UsageError(fmt::format("{} buckets instead of one per layer", buckets.size()));
    }
    std::sort(buckets.begin(), buckets.end(),
              [](const auto& a, const auto& b) { return a.ready < b.ready; });
    const double late = milliseconds(buckets[0].done - buckets[1].ready);
    const double moved = milliseconds(buckets[0].done - buckets[0].launched);
    const auto all = max_over_ranks(group, {with, without, -LongLayer::last, late, moved});
    if (step < kWarmUp) continue;
    rows.push_back(
        fmt::format("{{\"with\":{},\"without\":{},\"layer\":{},\"late\":{},\"first\":{}}}", all[0],
                    all[1], -all[2], all[3], all[4]));
  }
  if (world.rank() == 0) {
    std::ofstream(answer) << fmt::format("{{\"backend\":\"{}\",\"steps\":[{}]}}", group.backend(),
                                         fmt::join(rows, ","));
  }
  group.barrier().wait();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: layers_rank ANSWER MILLISECONDS STEPS\n");
    return 2;
  }
  try {
    measure(argv[1], std::stod(argv[2]), std::stoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
