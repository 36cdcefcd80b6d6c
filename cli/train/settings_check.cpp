#include "cli/train/settings_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Unit = TrainLength::Unit;

void at_least(std::string_view name, std::int64_t value, std::int64_t least) {
  if (value < least) {
    throw UsageError(fmt::format("--{} is {}, expected {} or more", name, value, least));
  }
}

void within(std::string_view name, double value, double least, double below) {
  if (!(value >= least && value < below)) {
    throw UsageError(fmt::format("--{} is {}, expected a number from {} to below {}", name, value,
                                 least, below));
  }
}

void check_counts(const TrainConfig& c) {
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, std::int64_t>>{
           {"layers", c.layers},
           {"heads", c.heads},
           {"width", c.width},
           {"context", c.context},
           {"classes", c.classes},
           {"batch", c.batch},
           {"rate-batch", c.rate_batch}}) {
    at_least(name, value, 1);
  }
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, std::int64_t>>{
           {"workers", c.workers},
           {"global-batch", c.global_batch},
           {"accumulate", c.accumulate},
           {"recompute", c.recompute},
           {"seed", c.seed},
           {"evaluate-batches", c.evaluate_batches},
           {"patience", c.patience},
           {"sample-tokens", c.sample_tokens},
           {"max-restarts", c.max_restarts}}) {
    at_least(name, value, 0);
  }
  at_least("keep", c.keep, 2);
  for (const auto width : c.hidden) at_least("hidden", width, 1);
}

void check_numbers(const TrainConfig& c) {
  within("dropout", c.dropout, 0, 1);
  within("held-out", c.held_out, 0, 1);
  within("beta2", c.beta2, 0, 1);
  within("momentum", c.momentum, 0, 1);
  within("weight-decay", c.weight_decay, 0, 1);
  within("rate-floor", c.rate_floor, 0, 1.0000001);
  if (!(c.rate > 0)) throw UsageError(fmt::format("--rate is {}, expected one above 0", c.rate));
  if (!(c.clip >= 0)) throw UsageError(fmt::format("--clip is {}, expected 0 or more", c.clip));
}

void check_intervals(const TrainConfig& c) {
  for (const auto& [name, length] :
       {std::pair{"evaluate-every", c.evaluate_every}, std::pair{"save-every", c.save_every},
        std::pair{"log-every", c.log_every}, std::pair{"warmup", c.warmup}}) {
    if (length.unit == Unit::seconds) {
      throw UsageError(fmt::format(
          "--{} is {}, a time: ranks do it together at a step, so give steps (100st), epochs (1ep) "
          "or tokens (1Mtok)",
          name, to_string(length)));
    }
  }
}

// A value that was typed and would change nothing is a misunderstanding.
void refuse_ignored(const ResolvedConfig& resolved) {
  const auto& c = resolved.config;
  const auto needs = [&](const std::string& name, bool means_something, std::string_view what) {
    const auto origin = resolved.origins.find(name);
    if (means_something || origin == resolved.origins.end() || origin->second != "--" + name)
      return;
    throw UsageError(fmt::format("--{} means nothing {}: leave it out", name, what));
  };
  needs("momentum", c.optimizer == OptimizerKind::sgd, "without --optimizer sgd");
  needs("beta2", c.optimizer != OptimizerKind::sgd, "with --optimizer sgd");
  needs("rate-batch", c.rate_scaling != RateScaling::none, "without --rate-scaling");
  const bool falls = c.schedule == ScheduleKind::cosine || c.schedule == ScheduleKind::linear;
  needs("rate-floor", falls, "without --schedule cosine or linear");
  for (const auto* name : {"patience", "evaluate-every", "evaluate-batches"}) {
    needs(name, c.held_out > 0 || !takes_tokens(c.model), "with --held-out 0");
  }
}

}  // namespace

void check(ResolvedConfig& resolved) {
  auto& c = resolved.config;
  check_counts(c);
  check_numbers(c);
  check_intervals(c);
  if (takes_tokens(c.model) && c.width % c.heads != 0) {
    throw UsageError(fmt::format("--width {} does not split over --heads {}: try --width {}",
                                 c.width, c.heads, (c.width / c.heads + 1) * c.heads));
  }
  if (c.schedule == ScheduleKind::automatic) {
    c.schedule = c.length.unit == Unit::seconds ? ScheduleKind::constant : ScheduleKind::cosine;
  }
  if (c.length.unit == Unit::seconds && c.schedule != ScheduleKind::constant) {
    throw UsageError(fmt::format(
        "--for {} is a time, and how many steps that is nobody knows: --schedule constant, or give "
        "steps, epochs or tokens",
        to_string(c.length)));
  }
  refuse_ignored(resolved);
  if (c.global_batch > 0 && resolved.origins["accumulate"] == "default") c.accumulate = 0;
  if (c.global_batch == 0) c.accumulate = std::max<std::int64_t>(c.accumulate, 1);
}

}  // namespace lockstep::cli
