#include "cli/train/device_choice.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

// Why this run cannot use a GPU; empty if it can.
std::string obstacle(const DeviceFacts& facts) {
  if (facts.num_gpus == 0) return "no GPU is visible";
  if (!facts.build_has_cuda) {
    return "this build has no CUDA (install the CUDA toolkit, put nvcc on PATH, run "
           "`tools/bootstrap gpu` and build again)";
  }
  if (facts.ranks != "auto" && facts.ranks != "1") {
    return fmt::format("--ranks is {}, and this version trains with one rank on a GPU",
                       facts.ranks);
  }
  return {};
}

}  // namespace

DeviceDecision choose_device(const DeviceFacts& facts) {
  if (facts.asked == TrainDevice::cpu) return {TrainDevice::cpu, {}};
  const auto why_not = obstacle(facts);
  if (facts.asked == TrainDevice::cuda) {
    if (why_not.empty()) return {TrainDevice::cuda, {}};
    throw UsageError(
        fmt::format("--device cuda is not available: {}. Give --device cpu to train "
                    "on the CPU",
                    why_not));
  }
  if (!why_not.empty()) {
    return {TrainDevice::cpu,
            facts.num_gpus == 0 ? "" : fmt::format("Training on the CPU: {}.", why_not)};
  }
  return {TrainDevice::cuda,
          fmt::format("Training on the GPU with one rank: {} GPU{} visible; --device cpu uses the "
                      "processor's cores.",
                      facts.num_gpus, facts.num_gpus == 1 ? " is" : "s are")};
}

}  // namespace lockstep::cli
