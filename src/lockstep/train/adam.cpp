#include "lockstep/train/adam.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/adam_pass.h"
#include "lockstep/train/segment_step_internal.h"

namespace lockstep {
namespace {

template <typename Options>
void check(const char* kind, const Options& options) {
  const auto [beta1, beta2] = options.betas;
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  if (!is_beta(beta1) || !is_beta(beta2)) {
    throw UsageError(
        fmt::format("{} with betas ({}, {}): expected two values in [0, 1)", kind, beta1, beta2));
  }
  // With eps 0, an element whose gradient has always been 0 would become 0 / 0.
  expect_option(options.eps > 0, kind, "eps", options.eps, "a value above 0");
}

template <typename Options>
AdamRule rule_of(const Options& options, bool decoupled) {
  const auto [beta1, beta2] = options.betas;
  return {.beta1 = beta1, .beta2 = beta2, .eps = options.eps, .decoupled = decoupled};
}

// Both kinds differ in their constants only.
void step_adam(const SegmentMemory& memory, std::span<const RangeStep> ranges,
               const AdamRule& rule) {
  step_segment<AdamStretch>(
      memory, ranges,
      [](auto& stretch, const auto& state_at) {
        stretch.averages = state_at(0);
        stretch.squares = state_at(1);
      },
      rule, adam_step, [](const auto& part, const AdamStep& step) { adam_pass(part, step); },
      [](const auto& stretch, DeviceChunks chunks, const AdamStep* steps, const std::uint32_t* skip,
         DeviceStream stream) { launch_adam(stretch, chunks, steps, skip, stream); });
}

}  // namespace

Adam::Adam(FlatParameters& flat, const AdamOptions& options)
    : FlatOptimizer(flat, {.kind = "Adam",
                           .lr = options.lr,
                           .weight_decay = options.weight_decay,
                           .groups = options.groups,
                           .state_names = {"exp_avg", "exp_avg_sq"}}),
      options_(options) {
  check("Adam", options);
}

void Adam::update(const SegmentMemory& memory, std::span<const RangeStep> ranges) {
  step_adam(memory, ranges, rule_of(options_, /*decoupled=*/false));
}

AdamW::AdamW(FlatParameters& flat, const AdamWOptions& options)
    : FlatOptimizer(flat, {.kind = "AdamW",
                           .lr = options.lr,
                           .weight_decay = options.weight_decay,
                           .groups = options.groups,
                           .state_names = {"exp_avg", "exp_avg_sq"}}),
      options_(options) {
  check("AdamW", options);
}

void AdamW::update(const SegmentMemory& memory, std::span<const RangeStep> ranges) {
  step_adam(memory, ranges, rule_of(options_, /*decoupled=*/true));
}

}  // namespace lockstep
