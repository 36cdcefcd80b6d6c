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
           {"base-batch-size", c.base_batch_size}}) {
    at_least(name, value, 1);
  }
  for (const auto& [name, value] : std::initializer_list<std::pair<std::string_view, std::int64_t>>{
           {"vocabulary", c.vocabulary},
           {"workers", c.workers},
           {"global-batch", c.global_batch},
           {"grad-accum", c.grad_accum},
           {"recompute", c.recompute},
           {"powersgd-rank", c.powersgd_rank},
           {"powersgd-start", c.powersgd_start},
           {"seed", c.seed},
           {"eval-batches", c.eval_batches},
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
  within("val-fraction", c.val_fraction, 0, 1);
  within("beta2", c.beta2, 0, 1);
  within("momentum", c.momentum, 0, 1);
  within("weight-decay", c.weight_decay, 0, 1);
  within("min-lr-ratio", c.min_lr_ratio, 0, 1.0000001);
  if (!(c.lr > 0)) throw UsageError(fmt::format("--lr is {}, expected a number above 0", c.lr));
  if (!(c.max_grad_norm >= 0))
    throw UsageError(fmt::format("--max-grad-norm is {}, expected 0 or more", c.max_grad_norm));
}

void check_intervals(const TrainConfig& c) {
  for (const auto& [name, length] :
       {std::pair{"eval-every", c.eval_every}, std::pair{"save-every", c.save_every},
        std::pair{"log-every", c.log_every}, std::pair{"warmup", c.warmup}}) {
    if (length.unit == Unit::seconds) {
      throw UsageError(
          fmt::format("--{} is {}, a time: all ranks act at the same step, so give steps (100), "
                      "epochs (1ep) or tokens (1Mtok)",
                      name, to_string(length)));
    }
  }
}

// Refuses an option that was typed and has no effect: the user expects one.
void refuse_ignored(const ResolvedConfig& resolved) {
  const auto& c = resolved.config;
  const auto needs = [&](const std::string& name, bool has_effect, std::string_view what) {
    const auto origin = resolved.origins.find(name);
    if (has_effect || origin == resolved.origins.end() || origin->second != "--" + name) return;
    throw UsageError(fmt::format("--{} has no effect {}: leave it out", name, what));
  };
  needs("momentum", c.optimizer == OptimizerKind::sgd, "without --optimizer sgd");
  needs("beta2", c.optimizer != OptimizerKind::sgd, "with --optimizer sgd");
  needs("base-batch-size", c.lr_scaling != LrScaling::none, "without --lr-scaling");
  const bool decays = c.schedule == ScheduleKind::cosine || c.schedule == ScheduleKind::linear;
  needs("min-lr-ratio", decays, "without --schedule cosine or linear");
  const bool may_be_powersgd =
      c.compress == Compress::powersgd || c.compress == Compress::automatic;
  for (const auto* name : {"powersgd-rank", "powersgd-start"}) {
    needs(name, may_be_powersgd, "without --compress powersgd or auto");
  }
  const bool shares = c.copies == CopiesKind::per_host;
  needs("copies", c.shard != Sharding::none || !shares,
        "without --shard optimizer, gradients or auto");
  for (const auto* name : {"patience", "eval-every", "eval-batches"}) {
    needs(name, c.val_fraction > 0 || !trains_on_tokens(c.model), "with --val-fraction 0");
  }
}

}  // namespace

void check(ResolvedConfig& resolved) {
  auto& c = resolved.config;
  check_counts(c);
  check_numbers(c);
  check_intervals(c);
  if (trains_on_tokens(c.model) && c.width % c.heads != 0) {
    throw UsageError(fmt::format("--width {} is not a multiple of --heads {}: try --width {}",
                                 c.width, c.heads, (c.width / c.heads + 1) * c.heads));
  }
  if (c.schedule == ScheduleKind::automatic) {
    c.schedule = c.length.unit == Unit::seconds ? ScheduleKind::constant : ScheduleKind::cosine;
  }
  if (c.length.unit == Unit::seconds && c.schedule != ScheduleKind::constant) {
    throw UsageError(fmt::format(
        "--time {} needs --schedule constant, because the number of steps is not known: give that, "
        "or --steps, --epochs or --tokens in place of --time",
        value_text(c.length)));
  }
  refuse_ignored(resolved);
  if (c.cuda_graph && (c.grad_accum > 1 || c.device == TrainDevice::cpu)) {
    throw UsageError(
        "--cuda-graph replays whole steps on a GPU: leave out --grad-accum and --device cpu, or "
        "--cuda-graph");
  }
  if (c.cuda_graph && c.compress != Compress::none) {
    throw UsageError(
        "--cuda-graph cannot contain the hook that compresses gradients: leave out --compress, or "
        "--cuda-graph");
  }
  if (c.cuda_graph && c.tail == TailKind::uneven) {
    throw UsageError(
        "--cuda-graph replays steps of one shape, and --tail uneven has smaller ones: give --tail "
        "drop or pad");
  }
  if (c.global_batch > 0 && resolved.origins["grad-accum"] == "default") c.grad_accum = 0;
  if (c.global_batch == 0) c.grad_accum = std::max<std::int64_t>(c.grad_accum, 1);
}

void check_new_run(const TrainConfig& c) {
  if (c.compress == Compress::powersgd && c.length.unit == Unit::steps &&
      c.length.amount <= static_cast<double>(c.powersgd_start)) {
    throw UsageError(fmt::format(
        "--compress powersgd would compress nothing: it begins after --powersgd-start {} "
        "steps, and the run has {:g}. Give --powersgd-start {:.0f}, or more --steps",
        c.powersgd_start, c.length.amount, c.length.amount / 10));
  }
}

}  // namespace lockstep::cli
