// The time of a training step with compressed gradients, for compression_between_hosts:
//   compressed_step METHOD WIDTH BATCH STEPS
// METHOD: none, bf16, fp16, int8, powersgd (rank 4) or auto. The model has 8 layers of WIDTH. Rank
// 0 prints one line of JSON: the median of the steps after the first four, and the bytes of a step.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "ddp_against_python/fused_adamw.h"
#include "ddp_against_python/subject.h"
#include "lockstep/lockstep.h"

namespace {

using namespace lockstep;
using Milliseconds = std::chrono::duration<double, std::milli>;

// The codecs, whose state lives as long as their hooks.
struct Codecs {
  Int8Compression int8;
  PowerSgd power_sgd{{.rank = 4, .start_step = 0}};

  [[nodiscard]] GradientHook hook_of(const std::string& method) {
    if (method == "none") return all_reduce_hook();
    if (method == "bf16") return compress_bf16();
    if (method == "fp16") return compress_fp16();
    if (method == "int8") return int8.hook();
    if (method == "powersgd") return power_sgd.hook();
    if (method == "auto") {
      return GradientHook::fastest_of(
          {all_reduce_hook(), compress_bf16(), int8.hook(), power_sgd.hook()});
    }
    throw UsageError("unknown method " + method + ": none, bf16, fp16, int8, powersgd or auto");
  }
};

struct Totals {
  double bytes = 0;
  double wire_bytes = 0;
  Milliseconds encode{0};
  Milliseconds decode{0};
};

Totals totals_of(const StepRecord& record) {
  Totals sum;
  for (const auto& bucket : record.buckets) {
    sum.bytes += static_cast<double>(bucket.bytes);
    sum.wire_bytes += static_cast<double>(bucket.wire_bytes);
    sum.encode += bucket.encode;
    sum.decode += bucket.decode;
  }
  return sum;
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments != 5) {
    fmt::print(stderr, "usage: compressed_step METHOD WIDTH BATCH STEPS\n");
    return 2;
  }
  const auto world = init();
  const ProcessGroup group(world);
  const auto subject = make_subject(
      {.model = "mlp", .size = std::atoll(arguments[2]), .batch = std::atoll(arguments[3])},
      world.rank());
  Ddp ddp(*subject.model, group);
  Codecs codecs;
  ddp.set_hook(codecs.hook_of(arguments[1]));
  FusedAdamW optimizer(subject.model->parameters(), {.lr = 1e-4});
  constexpr int kWarmUp = 4;  // `auto` measures after the second step
  std::vector<double> seconds;
  for (int step = 0; step < kWarmUp + std::atoi(arguments[4]); ++step) {
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    subject.loss().backward();
    optimizer.step();
    optimizer.zero_grad();
    const Milliseconds whole = std::chrono::steady_clock::now() - begin;
    if (step >= kWarmUp) seconds.push_back(whole.count());
  }
  if (world.rank() != 0) return 0;
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  const auto totals = totals_of(ddp.record());
  fmt::print(
      "{{\"method\": \"{}\", \"backend\": \"{}\", \"step_ms\": {:.2f}, \"bytes\": {:.0f}, "
      "\"wire_bytes\": {:.0f}, \"encode_ms\": {:.2f}, \"decode_ms\": {:.2f}}}\n",
      arguments[1], group.backend(), *middle, totals.bytes, totals.wire_bytes,
      totals.encode.count(), totals.decode.count());
  return 0;
}
