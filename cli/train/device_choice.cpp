#include "cli/train/device_choice.h"

#include <fmt/format.h>

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

std::string gpus_are(int count) {
  return fmt::format("{} GPU{}", count, count == 1 ? " is" : "s are");
}

// Why this run cannot use a GPU; empty if it can.
std::string obstacle(const DeviceFacts& facts) {
  if (facts.num_gpus == 0) return "no GPU is visible";
  if (!facts.build_has_cuda) {
    return fmt::format("this build has no CUDA: {} (to get it: {}; then build again)",
                       facts.cuda_missing, facts.cuda_remedy);
  }
  int ranks = 1;  // for auto; an invalid number is refused elsewhere
  (void)std::from_chars(facts.ranks.data(), facts.ranks.data() + facts.ranks.size(), ranks);
  if (ranks > facts.num_gpus && !facts.allow_shared_gpu) {
    return fmt::format("--ranks is {}, and {} visible; --allow-shared-gpu lets ranks share one",
                       ranks, gpus_are(facts.num_gpus));
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
  const auto more = facts.num_gpus > 1 && facts.ranks == "auto"
                        ? fmt::format("; --ranks {} uses them all", facts.num_gpus)
                        : "";
  return {
      TrainDevice::cuda,
      fmt::format("Training on the GPU with {}: {} visible{}; --device cpu uses the "
                  "processor's cores.",
                  facts.ranks == "auto" || facts.ranks == "1" ? "one rank" : facts.ranks + " ranks",
                  gpus_are(facts.num_gpus), more)};
}

}  // namespace lockstep::cli
