// When the buckets of a Ddp are reduced on the device, relative to its backward, with ranks that
// share one GPU. Start it with the launcher:
//
//     lockstep run -n 2 --allow-shared-gpu build/…/device_trace_benchmark
//
// Each rank trains a GPT-2 of 124 million with DdpOptions::trace. The times are those of events on
// the streams of the device (ddp/device_timeline.h). The slowest rank counts, in the median of the
// steps. Prints bars on rank 0.
#include <ATen/cuda/CUDAEvent.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "bars.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/lockstep.h"
#include "models/gpt.h"

namespace {

constexpr std::int64_t kContext = 1024;
constexpr std::int64_t kBatch = 8;  // of a rank
constexpr int kWarmUp = 3;          // the order of the buckets is known after the first step
constexpr int kSteps = 9;

// Of one step; fractions of the device time of the backward.
struct Shares {
  double first = 0;   // the reduction of the first bucket began
  double second = 0;  // that of the last but one began
  double last = 0;    // all were done
};

// `whole`: from before the backward to the end of all reductions, on the stream of the caller. The
// times of the device are after the first gradient, which arrives a while after the beginning.
Shares shares_of(const lockstep::DeviceTimes& times, double whole) {
  double done = times.backward.count();
  for (const auto& bucket : times.buckets) done = std::max(done, bucket.done.count());
  const double before = std::max(0.0, whole - done);
  const double backward = before + times.backward.count();
  const auto share = [&](double time) { return (before + time) / backward; };
  const auto& last_but_one = times.buckets[times.buckets.size() - 2];
  return {share(times.buckets.front().begun.count()), share(last_but_one.begun.count()),
          share(done)};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The median over the steps of the largest value of any rank.
double largest(const lockstep::ProcessGroup& group, const std::vector<Shares>& steps,
               double Shares::*value) {
  std::vector<double> of_steps;
  for (const auto& step : steps) {
    const auto all = lockstep::gather_values(group, step.*value);
    of_steps.push_back(*std::ranges::max_element(all));
  }
  return median(of_steps);
}

}  // namespace

int main() {
  if (!torch::cuda::is_available()) {
    fmt::print("SKIPPED: no GPU on this machine\n");
    return 77;
  }
  const auto world = lockstep::init();
  const auto device = lockstep::device_of(world, {.share = true});
  const lockstep::ProcessGroup group(world);
  lockstep::models::Gpt net(lockstep::models::GptOptions{
      .vocabulary = 50304, .context = kContext, .layers = 12, .heads = 12, .width = 768});
  net->to(device);
  lockstep::Trace trace;
  lockstep::Ddp ddp(*net, group, {.trace = &trace});
  lockstep::AdamW optimizer(ddp.flat(), {.lr = 6e-4});
  const auto tokens =
      torch::randint(50257, {kBatch, kContext + 1}, torch::device(device).dtype(torch::kLong));

  std::vector<Shares> steps;
  std::size_t num_buckets = 0;
  for (int number = -kWarmUp; number < kSteps; ++number) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    {
      const lockstep::Autocast lower(at::kBFloat16, at::kCUDA);
      const auto logits = net->forward(tokens.slice(1, 0, kContext));
      const auto loss =
          torch::cross_entropy_loss(logits.flatten(0, 1), tokens.slice(1, 1).flatten());
      begin.record();
      loss.backward();
      end.record();
    }
    optimizer.step();
    optimizer.zero_grad();
    const auto times = ddp.record().device->read();
    end.synchronize();
    num_buckets = times.buckets.size();
    if (number >= 0) steps.push_back(shares_of(times, begin.elapsed_time(end)));
  }
  const double first = largest(group, steps, &Shares::first);
  const double second = largest(group, steps, &Shares::second);
  const double last = largest(group, steps, &Shares::last);
  if (group.rank() != 0) return 0;
  fmt::print(
      "GPT-2 124 M, {} ranks on one GPU over {}, {} buckets; of the backward's device time\n",
      group.size(), group.backend(device), num_buckets);
  lockstep::print_bar(fmt::format("trace, {} ranks, 124 M: first bucket starts", group.size()),
                      fmt::format("{:.2f} of backward", first), "< 0.5", first < 0.5);
  lockstep::print_bar(fmt::format("trace, {} ranks, 124 M: last but one starts", group.size()),
                      fmt::format("{:.2f} of backward", second), "< 1", second < 1);
  lockstep::print_bar(fmt::format("trace, {} ranks, 124 M: all are reduced", group.size()),
                      fmt::format("{:.2f} of backward", last));
  return 0;
}
