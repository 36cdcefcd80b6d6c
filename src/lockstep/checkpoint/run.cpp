#include "lockstep/checkpoint/run.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/checkpoint/run_state_internal.h"

namespace lockstep {
namespace {

void check(const StepEnd& end) {
  for (const auto& name : end.keep_as) {
    if (is_part_name(name)) continue;
    throw UsageError(fmt::format(
        "keep_as has the invalid name {}; use 1 to 64 letters, digits, _ and -", in_quotes(name)));
  }
}

}  // namespace

Run::Run(const World& world, const std::string& folder, RunOptions options)
    : state_(std::make_unique<State>(world, folder, std::move(options))) {}

Run::~Run() { state_->warn_of_lost_steps(); }

void Run::add(const std::string& name, std::unique_ptr<Tracked> thing) {
  if (!is_part_name(name) || name.starts_with("rank-")) {
    throw UsageError(
        fmt::format("track(\"{}\"): the name is invalid; use 1 to 64 letters, digits, _ and -, not "
                    "beginning with rank-",
                    name));
  }
  for (const auto& [other, tracked] : state_->parts) {
    if (other == name) {
      throw UsageError(
          fmt::format("track(\"{}\"): the name is already used by {}; give {} another name", name,
                      tracked->kind(), thing->kind()));
    }
  }
  if (state_->resumed) {
    throw UsageError(fmt::format("track(\"{}\") was called after resume(); call it before", name));
  }
  state_->parts.emplace_back(name, std::move(thing));
}

std::int64_t Run::resume() {
  auto& state = *state_;
  auto& files = *state.options.files;
  if (state.world.rank() == 0) state.lock_folder();
  const auto found = newest_common(files, state.checkpoints, state.world, state.group, state.log);
  if (found) {
    expect_same_run(found->manifest, state.options, state.world.rank(), state.log);
    load_parts(files, *found, state.parts, state.world.rank(), state.world.size(), state.log);
    state.step = found->manifest.step;
    state.resumed_from = state.step;
    state.saved_step = state.step;
    state.saved_reason = found->manifest.reason;
    state.failures = found->manifest.failures + (is_intermediate(state.saved_reason) ? 1 : 0);
  }
  state.resumed = true;
  if (state.world.rank() == 0) {
    state.sweep_folder();
    state.writer.start_from(state.step);
    state.log.info(found
                       ? fmt::format("resumes after step {} from {}", state.step, found->path)
                       : fmt::format("starts from step 0: no checkpoint in {}", state.checkpoints));
  }
  // No rank writes before all ranks have read and rank 0 has removed unfinished folders.
  state.group.barrier({.name = "resumed"}).wait();
  return state.step;
}

bool Run::end_of_step(const StepEnd& end) {
  check(end);
  auto& state = *state_;
  state.expect_resumed();
  ++state.step;
  state.ended = false;
  bool stop = false;
  if (state.last_answer) {
    state.last_answer->wait();
    stop = State::any_stops(state.last_answer->flags());
    if (state.has_failed(state.last_answer->flags())) state.judge_failure();
  }
  if (stop) {
    state.last_answer.reset();
    state.ended = true;
    state.save_and_wait(SaveReason::stop, end);
    if (state.world.rank() == 0) {
      state.log.info(fmt::format(
          "stop signal received: the run stops after step {}, which is saved", state.step));
    }
    return true;
  }
  const auto every = state.options.save_every;
  if (every > 0 && state.step % every == 0) {
    state.save(SaveReason::periodic, end);
  } else if (!end.keep_as.empty()) {
    state.save(SaveReason::asked, end);
  } else if (every > 0 && !state.reserved) {
    state.writer.reserve(state.files_to_stage());
  }
  state.reserved = true;
  state.last_answer = state.group.barrier({.name = "end of step", .flags = state.flags()});
  return false;
}

void Run::save() { state_->save(SaveReason::asked); }

void Run::finish() {
  if (state_->last_answer) state_->last_answer->wait();
  state_->last_answer.reset();
  state_->ended = true;
  state_->save_and_wait(SaveReason::finish);
}

std::int64_t Run::step() const noexcept { return state_->step; }
std::int64_t Run::failures() const noexcept { return state_->failures; }

std::optional<int> Run::stop_signal() const noexcept {
  const int signal = state_->signals.received();
  return signal == 0 ? std::nullopt : std::optional(signal);
}

const std::string& Run::checkpoints_folder() const noexcept { return state_->checkpoints; }
std::int64_t Run::saved_step() const { return state_->writer.last_committed(); }
WriterTimes Run::save_times() const { return state_->writer.times(); }

}  // namespace lockstep
