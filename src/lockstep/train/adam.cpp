#include "lockstep/train/adam.h"

#include <cmath>

#include "lockstep/kernels/adam_pass.h"
#include "lockstep/train/stretch_internal.h"

namespace lockstep {
namespace {

template <typename Options>
void check(const char* kind, const Options& options) {
  const auto is_beta = [](double beta) { return beta >= 0 && beta < 1; };
  expect_option(is_beta(options.beta1), kind, "beta1", options.beta1, "one of [0, 1)");
  expect_option(is_beta(options.beta2), kind, "beta2", options.beta2, "one of [0, 1)");
  // With 0, an element without gradient so far would become 0 / 0.
  expect_option(options.epsilon > 0, kind, "epsilon", options.epsilon, "one above 0");
}

template <typename Options>
AdamStep step_of(const Options& options, const GroupStep& group) {
  const auto t = static_cast<double>(group.step);
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .step_size = group.rate / (1 - std::pow(options.beta1, t)),
          .root_factor = 1 / std::sqrt(1 - std::pow(options.beta2, t))};
}

}  // namespace

Adam::Adam(FlatParameters& flat, const AdamOptions& options)
    : FlatOptimizer(flat, {.kind = "Adam",
                           .rate = options.rate,
                           .weight_decay = options.weight_decay,
                           .groups = options.groups,
                           .state_names = {"exp_avg", "exp_avg_sq"}}),
      options_(options) {
  check("Adam", options);
}

void Adam::update(const StepRange& range, const GroupStep& group) {
  auto step = step_of(options_, group);
  step.decay = group.weight_decay;
  for_each_part<AdamStretch>(
      flat(), range, masters(range.segment),
      [&](auto& stretch) {
        stretch.averages = elements_at(state(0, range.segment), range, stretch.averages);
        stretch.squares = elements_at(state(1, range.segment), range, stretch.squares);
      },
      [&](const auto& part) { adam_pass(part, step); });
}

AdamW::AdamW(FlatParameters& flat, const AdamWOptions& options)
    : FlatOptimizer(flat, {.kind = "AdamW",
                           .rate = options.rate,
                           .weight_decay = options.weight_decay,
                           .groups = options.groups,
                           .state_names = {"exp_avg", "exp_avg_sq"}}),
      options_(options) {
  check("AdamW", options);
}

void AdamW::update(const StepRange& range, const GroupStep& group) {
  auto step = step_of(options_, group);
  step.kept = 1 - group.rate * group.weight_decay;
  for_each_part<AdamStretch>(
      flat(), range, masters(range.segment),
      [&](auto& stretch) {
        stretch.averages = elements_at(state(0, range.segment), range, stretch.averages);
        stretch.squares = elements_at(state(1, range.segment), range, stretch.squares);
      },
      [&](const auto& part) { adam_pass(part, step); });
}

}  // namespace lockstep
