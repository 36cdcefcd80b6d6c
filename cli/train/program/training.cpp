#include "cli/train/program/training.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "cli/train/program/run_end.h"
#include "lockstep/base/error.h"
#include "lockstep/train/autocast.h"
#include "lockstep/train/clip.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

// If gradients overflow at this loss scale, the model has diverged.
constexpr double kLeastLossScale = 1.0 / 65536;

}  // namespace

bool Training::run() {
  announce();
  try {
    return train();
  } catch (const PeerError& error) {
    note_failure(error, error.rank());
    throw;
  } catch (const Error& error) {
    note_failure(error, world_.rank());
    throw;
  }
}

bool Training::train() {
  if (is_over()) {
    if (reporter_->speaks()) reporter_->say(write_end_again(saved_, end_facts()));
    return true;
  }
  while (!is_over()) {
    timer_->begin_step(run_.step() + 1);
    step();
    StepEnd end;
    if (evaluation_due()) {
      timer_->enter(StepPart::evaluation);
      if (evaluate_now()) end.keep_as = {"best"};
      timer_->enter(StepPart::other);
    }
    if (end_step(end)) {
      reporter_->say(fmt::format(
          "stopped at step {}; a checkpoint is saved. The same command resumes the run.",
          run_.step()));
      rank_log_->event(run_.step(), "stop", {{"text", "a signal requested the stop"}});
      return false;
    }
  }
  finish();
  return true;
}

void Training::step() {
  const auto begin = Clock::now();
  StepCost cost;
  Mean loss;
  seeds_.begin_step(run_.step());
  for (bool ends_step = false; !ends_step;) {
    timer_->enter(StepPart::data_wait);
    const auto batch = loader_.next();
    timer_->enter(StepPart::forward);
    if (graph_) {
      loss.add(replay(batch), static_cast<double>(batch.count()));
      cost.data_wait += batch.metrics.wait;
      break;
    }
    compute(batch, loss);
    if (batch.ends_step) timer_->move(StepPart::exposed, ddp_.record().exposed);
    timer_->enter(StepPart::other);
    cost.data_wait += batch.metrics.wait;
    ends_step = batch.ends_step;
  }
  timer_->enter(StepPart::optimizer);
  if (!graph_) norm_ = update_weights(schedule_.at(run_.step()));
  norms_ += norm_;
  timer_->enter(StepPart::other);
  const auto next = run_.step() + 1;
  const bool logs = next % counts_.log_every == 0 || next == 1 || next == counts_.total;
  if (logs) rank_log_->before_wait();
  // On a GPU these are the only waits for the device: the steps of an interval end here.
  if (logs) (void)loss.try_value();
  if (device_.is_cpu() || logs || next % counts_.save_every == 0) expect_finite();
  cost.exposed = step_record().exposed;
  cost.whole = Clock::now() - begin;
  meter_.add(cost, loss);
  if (logs) log_interval();
  if (reporter_->live_due()) {
    const auto own = loss.try_value().value_or(std::numeric_limits<double>::quiet_NaN());
    reporter_->show_live(live_progress(work_, meter_, state(), own));
  }
}

bool Training::end_step(const StepEnd& end) {
  timer_->enter(StepPart::checkpoint);
  const auto begin = Clock::now();
  const bool told_to_stop = run_.end_of_step(end);
  const auto stall = Clock::now() - begin;
  meter_.add_saving(stall);
  // Those of steps without a save are dropped with the next save.
  stalls_[run_.step()] = stall;
  timer_->enter(StepPart::other);
  note_save();
  rank_log_->add(timer_->end_step(), step_record(), backward_);
  if (interval_loss_) rank_log_->end_interval(run_.step(), *interval_loss_);
  const bool is_first = interval_loss_ && run_.step() >= counts_.log_every && !has_period_;
  if (is_first || evaluated_at_ == run_.step() || is_over()) {
    rank_log_->end_period(run_.step());
    has_period_ = true;
  }
  interval_loss_.reset();
  return told_to_stop;
}

bool Training::gave_up() const { return config_.patience > 0 && best_.since() >= config_.patience; }

bool Training::is_over() const {
  if (gave_up()) return true;
  if (counts_.total) return run_.step() >= *counts_.total;
  return clock_.seconds >= config_.length.amount;
}

bool Training::evaluation_due() const {
  if (task_->validation() == nullptr) return false;
  const auto next = run_.step() + 1;
  if (!counts_.total && clock_.seconds >= config_.length.amount) return true;
  return next % counts_.eval_every == 0 || next == counts_.total;
}

at::Tensor Training::loss_of(const Batch& batch) {
  const auto lower = autocast_type(config_.precision);
  if (!lower) return task_->loss(batch);
  const Autocast autocast(*lower, device_.type());
  return task_->loss(batch);
}

// With --tail uneven gradients are divided by the number of samples of all ranks.
void Training::compute(const Batch& batch, Mean& loss) {
  const bool is_uneven = config_.tail == TailKind::uneven;
  if (is_uneven && batch.count() == 0) {
    timer_->enter(StepPart::backward);
    backward_ = Clock::now();
    ddp_.sit_out();
    return;
  }
  const auto count = static_cast<double>(batch.count());
  const auto mean = loss_of(batch);
  timer_->enter(StepPart::backward);
  backward_ = Clock::now();
  if (is_uneven) ddp_.count(batch.count());
  scaler_.scale(is_uneven ? mean * count : mean).backward();
  loss.add(mean.detach(), count);
}

Pending<double> Training::update_weights(std::optional<double> lr) {
  auto& flat = ddp_.flat();
  const bool scales = config_.precision == Precision::float16;
  if (scales) scaler_.unscale(flat);
  const auto norm =
      config_.max_grad_norm > 0 ? clip_grad_norm(flat, config_.max_grad_norm) : grad_norm(flat);
  if (scales) {
    lr ? scaler_.step(*optimizer_, *lr) : scaler_.step(*optimizer_);
    scaler_.update();
  } else {
    lr ? optimizer_->step(*lr) : optimizer_->step();
  }
  optimizer_->zero_grad();
  return norm;
}

at::Tensor Training::replay(const Batch& batch) {
  optimizer_->set_lr(schedule_.at(run_.step()));
  first_batch_ = batch;  // the description; the tensors are those of the graph
  const auto loss = (*graph_)(batch.tensors);
  norm_ = Pending<double>(norm_of_graph_.clone());  // the next replay overwrites it
  return loss;
}

at::Tensor Training::captured_step(const std::vector<at::Tensor>& tensors) {
  auto batch = first_batch_;
  batch.tensors = tensors;
  auto mean = loss_of(batch);
  scaler_.scale(mean).backward();
  norm_of_graph_ = update_weights(std::nullopt).tensor();
  return mean;
}

const StepRecord& Training::step_record() const {
  static const StepRecord nothing;
  return graph_ && graph_->is_captured() ? nothing : ddp_.record();
}

// Squares are summed in double, so that the norm of finite gradients is finite; norms are not
// negative, so that their sum is finite only if each one is. With a loss scale, steps with
// non-finite gradients are skipped.
void Training::expect_finite() {
  const auto first = std::exchange(checked_until_, run_.step() + 1) + 1;
  const auto sum = std::exchange(norms_, 0).item();
  const bool is_fine = config_.precision == Precision::float16
                           ? scaler_.current_scale() >= kLeastLossScale
                           : std::isfinite(sum);
  if (!is_fine) refuse_non_finite(first);
}

void Training::refuse_non_finite(std::int64_t first) const {
  const auto names = ddp_.non_finite_parameters();
  const auto last = run_.step() + 1;
  throw UsageError(fmt::format(
      "the gradient of {} is not finite on at least one rank{}: the run has diverged. Earlier "
      "checkpoints are in {}; start again with --fresh and a lower --lr, a longer --warmup or "
      "--precision fp32{}",
      first < last ? fmt::format("a step from {} to {}", first, last)
                   : fmt::format("step {}", last),
      names.empty() ? ""
                    : fmt::format(" (on rank {}: {}, {} parameter{} in total)", world_.rank(),
                                  names[0], names.size(), names.size() == 1 ? "" : "s"),
      run_.checkpoints_folder(),
      config_.compress == Compress::fp16 ? ", or --compress bf16, which does not overflow" : ""));
}

}  // namespace lockstep::cli
