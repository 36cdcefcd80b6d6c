// What a run reports: events, rows, lines of progress, evaluations, the summary.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli/sibling.h"
#include "cli/train/old_spellings.h"
#include "cli/train/program/run_end.h"
#include "cli/train/program/training.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

void Training::note_failure(const Error& error, int rank) {
  // The messages of saves that failed name the checkpoint or its path.
  const std::string text = error.what();
  const bool is_save = text.find("checkpoint") != std::string::npos;
  try {
    rank_log_->event(run_.step(), is_save ? "save_failed" : "fault",
                     {{"rank", std::int64_t{rank}}, {"text", text}});
  } catch (const SystemError&) {  // NOLINT(bugprone-empty-catch): the first error is the cause
  }
}

void Training::note_save() {
  const auto saved = run_.saved_step();
  if (saved <= noted_save_) return;
  noted_save_ = saved;
  const auto times = run_.save_times();
  const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
  rank_log_->event(saved, "save",
                   {{"path", fmt::format("checkpoints/step-{}", saved)},
                    {"seconds", seconds(times.wrote)},
                    {"stall_ms", 1e3 * seconds(stalls_[saved])}});
  stalls_.erase(stalls_.begin(), stalls_.upper_bound(saved));
}

StepState Training::state() const {
  StepState state{.step = run_.step() + 1,
                  .lr = schedule_.at(run_.step()),
                  .gradient_norm = norm_,
                  .epoch = loader_.state().epoch};
  if (config_.precision == Precision::float16) state.loss_scale = scaler_.current_scale();
  if (!counts_.total) state.seconds_left = std::max(config_.length.amount - clock_.seconds, 0.0);
  return state;
}

void Training::log_interval() {
  interval_loss_ = meter_.own_loss();
  const auto interval = meter_.read_and_reset(group_);
  if (!counts_.total) clock_.seconds += interval.seconds.value();
  reporter_->write(interval_row(work_, interval, state()));
  reporter_->show_plain(interval_progress(work_, meter_, state(), interval));
}

bool Training::evaluate_now() {
  const auto begin = Clock::now();
  const auto next = run_.step() + 1;
  // The number of samples does not change with the number of ranks.
  const auto wanted = config_.eval_batches * config_.batch * saved_.world;
  const auto each = sizes_.local * sizes_.world;
  result_ = evaluate(*task_, group_, {.sizes = sizes_, .batches = (wanted + each - 1) / each});
  evaluated_at_ = next;
  const bool is_best = best_.add(result_->loss.value(), next);
  auto row = evaluation_row(next, *result_);
  reporter_->say(evaluation_line(next, *result_, best_, config_.patience));
  if (reporter_->speaks() && config_.sample_tokens > 0) {
    const auto sample = task_->sample(config_.sample_tokens);
    if (!sample.empty()) {
      reporter_->say(quoted_text(sample, "  | "));
      row.metrics.push_back({"sample", sample});
    }
  }
  reporter_->write(row);
  const auto spent = Clock::now() - begin;
  rank_log_->event(
      next, "evaluation",
      {{"seconds", std::chrono::duration<double>(spent).count()}, {"loss", result_->loss.value()}});
  meter_.add_evaluation(spent);
  return is_best;
}

SummaryFacts Training::end_facts() const {
  return {.folder = folder_,
          .why = end_reason(run_.step(), gave_up(), best_.since()),
          .gave_up = gave_up(),
          .steps = run_.step()};
}

void Training::finish() {
  run_.finish();
  note_save();
  rank_log_->event(run_.step(), "end", {{"text", end_facts().why}});
  const auto digest = equal_digest(ddp_.flat(), group_);
  if (!reporter_->speaks()) return;
  auto facts = end_facts();
  facts.command = typed_command(Environment::of_process());
  facts.metrics = read_metrics(reporter_->metrics_path(), {.renamed = renamed_metrics()});
  if (evaluated_at_ == run_.step()) facts.validation = result_;
  facts.best_loss = best_.loss();
  facts.best_step = best_.step();
  facts.split = meter_.split();
  facts.split_steps = meter_.steps();
  facts.units_per_step = work_.units;
  facts.unit = work_.unit;
  facts.world = world_.size();
  facts.digest = digest;
  facts.failures = run_.failures();
  for (const auto& advice : rank_log_->analysis().advice) {
    if (facts.advice.size() == 2) break;  // the report has the others
    facts.advice.push_back(fmt::format("{}. {}; expected gain {:.0f} %", advice.text, advice.action,
                                       100 * advice.gain));
  }
  facts.sample = task_->sample(2 * config_.sample_tokens);
  reporter_->say(write_end(saved_, facts));
}

}  // namespace lockstep::cli
