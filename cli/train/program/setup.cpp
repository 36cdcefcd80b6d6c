#include "cli/train/program/setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/sgd.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kStepDecays = 3;  // of a step schedule, each to a tenth

Schedule falling(const TrainConfig& config, std::int64_t steps) {
  const DecayOptions floor{.floor = config.rate_floor};
  switch (config.schedule) {
    case ScheduleKind::cosine:
      return cosine(steps, floor);
    case ScheduleKind::linear:
      return linear_decay(steps, floor);
    case ScheduleKind::step:
      return step_decay(std::max<std::int64_t>(steps / kStepDecays, 1), 0.1);
    case ScheduleKind::automatic:
    case ScheduleKind::constant:
      break;
  }
  return constant(1);
}

}  // namespace

BatchSizes batch_sizes_for(const SavedConfig& saved, int world) {
  const auto& config = saved.resolved.config;
  BatchRequest request{.world = saved.world, .local = config.batch};
  if (config.global_batch > 0) request.global = config.global_batch;
  if (config.accumulate > 0) request.accumulation = config.accumulate;
  const auto begun = derive_batch_sizes(request);
  return world == saved.world ? begun : change_world(begun, world, Keep::global);
}

StepCounts step_counts(const ResolvedConfig& resolved, StepSize size) {
  const auto& config = resolved.config;
  const auto steps = [&](std::string_view option, const TrainLength& length) {
    return try_steps(option, length, size).value_or(1);  // intervals are no times: settings_check
  };
  const auto total = try_steps("--for", config.length, size);
  auto warmup = steps("--warmup", config.warmup);
  if (total && warmup >= *total && resolved.origins.at("warmup") == "default") {
    warmup = std::max<std::int64_t>(*total / 10, 1);
  }
  return {.total = total,
          .warmup = warmup,
          .evaluate_every = steps("--evaluate-every", config.evaluate_every),
          .save_every = steps("--save-every", config.save_every),
          .log_every = steps("--log-every", config.log_every)};
}

Rate rate_for(const TrainConfig& config, std::int64_t global_batch) {
  if (config.rate_scaling == RateScaling::none) {
    return {config.rate, fmt::format("rate {}", config.rate)};
  }
  const auto rule =
      config.rate_scaling == RateScaling::linear ? RateRule::linear : RateRule::square_root;
  const auto scaled = scale_rate(config.rate, config.rate_batch, global_batch, rule);
  return {scaled.rate, describe(scaled)};
}

Schedule schedule_for(const TrainConfig& config, const StepCounts& counts, double highest) {
  const auto warmup = linear_warmup(counts.warmup);
  if (!counts.total) return highest * warmup.then(constant(1));
  if (counts.warmup >= *counts.total) {
    throw UsageError(fmt::format("--warmup {} is as long as the run, {} steps: make it shorter",
                                 to_string(config.warmup), *counts.total));
  }
  return highest * warmup.then(falling(config, *counts.total - counts.warmup));
}

std::unique_ptr<FlatOptimizer> make_optimizer(const TrainConfig& config, FlatParameters& flat) {
  const std::vector<ParameterGroup> groups{no_decay_for_biases_and_norms()};
  switch (config.optimizer) {
    case OptimizerKind::adam:
      return std::make_unique<Adam>(flat, AdamOptions{.rate = config.rate,
                                                      .beta2 = config.beta2,
                                                      .weight_decay = config.weight_decay,
                                                      .groups = groups});
    case OptimizerKind::sgd:
      return std::make_unique<SGD>(flat, SGDOptions{.rate = config.rate,
                                                    .momentum = config.momentum,
                                                    .weight_decay = config.weight_decay,
                                                    .groups = groups});
    case OptimizerKind::adamw:
      break;
  }
  return std::make_unique<AdamW>(flat, AdamWOptions{.rate = config.rate,
                                                    .beta2 = config.beta2,
                                                    .weight_decay = config.weight_decay,
                                                    .groups = groups});
}

}  // namespace lockstep::cli
