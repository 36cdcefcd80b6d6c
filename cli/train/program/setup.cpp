#include "cli/train/program/setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/sgd.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kStepDecays = 3;  // a step schedule multiplies lr by 0.1 this often

Schedule falling(const TrainConfig& config, std::int64_t steps) {
  const DecayOptions decay{.min_lr_ratio = config.min_lr_ratio};
  switch (config.schedule) {
    case ScheduleKind::cosine:
      return cosine(steps, decay);
    case ScheduleKind::linear:
      return linear_decay(steps, decay);
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
  if (config.grad_accum > 0) request.accumulation = config.grad_accum;
  const auto begun = derive_batch_sizes(request);
  return world == saved.world ? begun : change_world(begun, world, Keep::global);
}

StepCounts step_counts(const ResolvedConfig& resolved, StepSize size) {
  const auto& config = resolved.config;
  const auto steps = [&](std::string_view option, const TrainLength& length) {
    return try_steps(option, length, size).value_or(1);  // settings_check refuses a time here
  };
  const auto total = try_steps(length_option(config.length.unit), config.length, size);
  auto warmup = steps("--warmup", config.warmup);
  if (total && warmup >= *total && resolved.origins.at("warmup") == "default") {
    warmup = std::max<std::int64_t>(*total / 10, 1);
  }
  return {.total = total,
          .warmup = warmup,
          .eval_every = steps("--eval-every", config.eval_every),
          .save_every = steps("--save-every", config.save_every),
          .log_every = steps("--log-every", config.log_every)};
}

PeakLr peak_lr_for(const TrainConfig& config, std::int64_t global_batch) {
  if (config.lr_scaling == LrScaling::none) {
    return {config.lr, fmt::format("lr {}", config.lr)};
  }
  const auto rule = config.lr_scaling == LrScaling::linear ? LrRule::linear : LrRule::square_root;
  const auto scaled = scale_lr(config.lr, config.base_batch_size, global_batch, rule);
  return {scaled.lr, describe(scaled)};
}

Schedule schedule_for(const TrainConfig& config, const StepCounts& counts, double peak_lr) {
  const auto warmup = linear_warmup(counts.warmup);
  if (!counts.total) return peak_lr * warmup.then(constant(1));
  if (counts.warmup >= *counts.total) {
    throw UsageError(fmt::format(
        "--warmup {} is not shorter than the run, which has {} steps: give a shorter warm-up",
        to_string(config.warmup), *counts.total));
  }
  return peak_lr * warmup.then(falling(config, *counts.total - counts.warmup));
}

std::optional<at::ScalarType> autocast_type(Precision precision) {
  if (precision == Precision::bfloat16) return at::kBFloat16;
  if (precision == Precision::float16) return at::kHalf;
  return std::nullopt;
}

std::unique_ptr<FlatOptimizer> make_optimizer(const TrainConfig& config, FlatParameters& flat) {
  const std::vector<ParameterGroup> groups{no_decay_for_biases_and_norms()};
  switch (config.optimizer) {
    case OptimizerKind::adam:
      return std::make_unique<Adam>(flat, AdamOptions{.lr = config.lr,
                                                      .betas = {0.9, config.beta2},
                                                      .weight_decay = config.weight_decay,
                                                      .groups = groups});
    case OptimizerKind::sgd:
      return std::make_unique<SGD>(flat, SGDOptions{.lr = config.lr,
                                                    .momentum = config.momentum,
                                                    .weight_decay = config.weight_decay,
                                                    .groups = groups});
    case OptimizerKind::adamw:
      break;
  }
  return std::make_unique<AdamW>(flat, AdamWOptions{.lr = config.lr,
                                                    .betas = {0.9, config.beta2},
                                                    .weight_decay = config.weight_decay,
                                                    .groups = groups});
}

void expect_capturable(const TrainConfig& config, const CaptureFacts& facts) {
  if (facts.is_on_cpu) {
    throw UsageError("--cuda-graph needs a GPU: leave it out, or give --device cuda");
  }
  if (facts.num_ranks == 1) return;
  if (facts.backend != "nccl") {
    throw UsageError(
        fmt::format("--cuda-graph with several ranks needs backend nccl, and so a GPU per rank; "
                    "these ranks use backend {}: leave it out, or give --ranks 1",
                    facts.backend));
  }
  const auto refuse = [](std::string_view option) {
    throw UsageError(
        fmt::format("--cuda-graph with several ranks cannot contain the calls of {}: leave out one "
                    "of the two",
                    option));
  };
  if (facts.shard != Shard::none) refuse("--shard");
  if (config.sync_batch_norm) refuse("--sync-batch-norm");
}

}  // namespace lockstep::cli
