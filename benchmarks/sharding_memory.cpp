// The memory of a training step beyond activations, in bytes per parameter and host: plain Ddp,
// Shard::optimizer, Shard::gradients, both also with Copies::per_host, beside the formulas of
// docs/sharding.md. Bar: the peak is within 5 %.
//
//   export MIMALLOC_PURGE_DELAY=0
//   lockstep run -n 8 build/release/benchmarks/sharding_memory ddp | optimizer | per_host |
//       gradients | gradients_per_host
//
// Sums the proportional set sizes of all ranks, less those before the model was made; a page that
// several ranks have mapped counts once. A small model is trained first, because LibTorch's first
// step loads code and allocates memory that does not depend on the model. LibTorch's allocator on
// Arm, mimalloc, keeps freed memory unless that variable is 0.
//
// The peak is the largest of three sums, which are all printed: after some steps, at the last
// gradient of the last backward, and of the largest sizes that a thread sees in each rank inside
// the last step().
#include <fmt/format.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bars.h"
#include "lockstep/ddp/gradient_ring.h"
#include "lockstep/lockstep.h"

namespace {

constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kSmallWidth = 64;

double own_bytes() {
  ::malloc_trim(0);
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word != "Pss:") continue;
    double kib = 0;
    file >> kib;
    return kib * 1024;
  }
  throw lockstep::UsageError("/proc/self/smaps_rollup has no Pss: this kernel cannot measure it");
}

double sum_of_all(const lockstep::ProcessGroup& group, double own) {
  auto sum = torch::full({1}, own, torch::kDouble);
  group.all_reduce(sum, lockstep::ReduceOp::sum).wait();
  return sum.item<double>();
}

double bytes_of_all(const lockstep::ProcessGroup& group) {
  group.barrier().wait();  // all ranks have their memory
  return sum_of_all(group, own_bytes());
}

// The most bytes that this rank has while `action` runs.
double most_bytes(const std::function<void()>& action) {
  double most = 0;
  {
    const std::jthread reader([&most](const std::stop_token& stop) {
      while (!stop.stop_requested()) most = std::max(most, own_bytes());
    });
    action();
  }
  return most;
}

torch::nn::Sequential make_net(std::int64_t width) {
  constexpr int kLayers = 40;
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(width, width));
  return net;
}

struct Way {
  lockstep::Shard shard = lockstep::Shard::none;
  lockstep::Copies copies = lockstep::Copies::per_rank;
  double formula = 0;  // bytes per parameter and host, without rings of gradients
};

// In bytes per parameter and host.
struct Measured {
  double after_steps = 0;
  double at_last_gradient = 0;  // of a backward
  double most_in_step = 0;
  double ring = 0;  // part of each of them: the rings of all ranks
};

struct Peak {
  double bytes = 0;
  std::string_view when;
};

Peak peak_of(const Measured& measured) {
  return std::max({Peak{measured.after_steps, "after steps"},
                   Peak{measured.at_last_gradient, "at the last gradient of a backward"},
                   Peak{measured.most_in_step, "inside step()"}},
                  [](const Peak& a, const Peak& b) { return a.bytes < b.bytes; });
}

constexpr std::size_t kBucketBytes = 8 << 20;

// The ring of a rank: float32, one segment.
double ring_bytes(const lockstep::BucketPlan& plan) {
  std::vector<std::int64_t> lengths;
  for (const auto& bucket : plan.buckets) lengths.push_back((bucket.end - bucket.begin) * 4);
  return static_cast<double>(
      lockstep::ring_length(lengths, static_cast<std::int64_t>(kBucketBytes)));
}

Measured bytes_per_parameter(const lockstep::ProcessGroup& group, const Way& way,
                             std::int64_t width) {
  const auto before = bytes_of_all(group);
  auto net = make_net(width);
  lockstep::Ddp ddp(*net, group,
                    {.bucket_bytes = kBucketBytes, .shard = way.shard, .copies = way.copies});
  lockstep::AdamW optimizer(ddp.flat());
  const auto parameters = net->parameters();
  std::size_t num_gradients = 0;
  double at_last_gradient = 0;
  double most_in_step = 0;
  for (const auto& parameter : parameters) {
    parameter.register_hook([&](const at::Tensor&) {
      if (++num_gradients % parameters.size() == 0) at_last_gradient = own_bytes();
    });
  }
  for (int step = 0; step < 3; ++step) {
    net->forward(torch::ones({1, width})).square().mean().backward();
    most_in_step = most_bytes([&] { optimizer.step(); });
    optimizer.zero_grad();
  }
  const auto after = bytes_of_all(group);
  double count = 0;
  for (const auto& parameter : parameters) count += static_cast<double>(parameter.numel());
  const bool has_ring = way.shard == lockstep::Shard::gradients;
  return {.after_steps = (after - before) / count,
          .at_last_gradient = (sum_of_all(group, at_last_gradient) - before) / count,
          .most_in_step = (sum_of_all(group, most_in_step) - before) / count,
          .ring = has_ring ? group.size() * ring_bytes(ddp.plan()) / count : 0};
}

}  // namespace

int main(int num_arguments, char** arguments) {
  ::mallopt(M_MMAP_THRESHOLD, 64 << 10);  // freed tensors are not kept for later ones
  const auto world = lockstep::init();
  at::set_num_threads(1);
  const lockstep::ProcessGroup group(world);
  const double ranks = group.size();
  using enum lockstep::Shard;
  using enum lockstep::Copies;
  const std::map<std::string, Way> ways{{"ddp", {none, per_rank, 16 * ranks}},
                                        {"optimizer", {optimizer, per_rank, 8 * ranks + 8}},
                                        {"per_host", {optimizer, per_host, 4 * ranks + 16}},
                                        {"gradients", {gradients, per_rank, 4 * ranks + 12}},
                                        {"gradients_per_host", {gradients, per_host, 20}}};
  if (num_arguments != 2 || !ways.contains(arguments[1])) {
    std::fputs(
        "usage: sharding_memory ddp | optimizer | per_host | gradients | gradients_per_host\n",
        stderr);
    return 2;
  }
  const auto& way = ways.at(arguments[1]);
  (void)bytes_per_parameter(group, way, kSmallWidth);
  const auto measured = bytes_per_parameter(group, way, kWidth);
  if (group.rank() != 0) return 0;
  const auto [bytes, when] = peak_of(measured);
  const auto expected = way.formula + measured.ring;
  lockstep::print_bar(
      fmt::format("{}, {} ranks", arguments[1], group.size()),
      fmt::format("{:.2f} bytes per parameter and host, {}", bytes, when),
      fmt::format("{:.2f}{} within 5 %", expected,
                  measured.ring > 0 ? fmt::format(" ({:.2f} of them rings)", measured.ring) : ""),
      std::abs(bytes / expected - 1) <= 0.05);
  fmt::print(
      "{:.2f} after steps, {:.2f} at the last gradient of a backward, at most {:.2f} inside "
      "step()\n",
      measured.after_steps, measured.at_last_gradient, measured.most_in_step);
  return 0;
}
