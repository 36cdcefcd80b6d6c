#include "lockstep/checkpoint/run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/resuming_internal.h"
#include "lockstep/checkpoint/stop_signals.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {
namespace {

constexpr char kDefaultGenerator[] = "default_generator";

// A number of rank 0's that no other run has, as text, on all ranks.
std::string make_nonce(const ProcessGroup& group) {
  auto number = at::zeros({1}, at::kLong);
  auto* bits = number.mutable_data_ptr<std::int64_t>();
  if (group.rank() == 0 && ::getrandom(bits, sizeof *bits, 0) != sizeof *bits) {
    throw SystemError("cannot get random bits for the names of unfinished checkpoints", errno);
  }
  group.broadcast(number, 0, {.name = "run nonce"}).wait();
  return fmt::format("{:016x}", static_cast<std::uint64_t>(*bits));
}

RunOptions checked(RunOptions options) {
  if (options.save_every < 0) {
    throw UsageError(fmt::format("save_every is {}; it is a number of steps, or 0 for none",
                                 options.save_every));
  }
  Manifest probe;
  probe.configuration = options.configuration;
  // Throws when it is no JSON; and is as manifests have it from here on, to be compared.
  options.configuration = manifest_from_text(to_text(probe)).configuration;
  return options;
}

// A run that ended with such a checkpoint did not mean to.
bool is_in_passing(SaveReason reason) {
  return reason == SaveReason::periodic || reason == SaveReason::asked;
}

void check(const StepEnd& end) {
  for (const auto& name : end.keep_as) {
    if (is_part_name(name)) continue;
    throw UsageError(fmt::format(
        "a checkpoint cannot be kept as {}: 1 to 64 letters, digits, _ and -", in_quotes(name)));
  }
}

}  // namespace

struct Run::State {
  State(const World& of, const std::string& folder, RunOptions chosen)
      : world(of),
        options(checked(std::move(chosen))),
        checkpoints(folder + "/checkpoints"),
        log(options.log.value_or(Log({.rank = of.rank()}))),
        group(of, {.name = "run", .timeout = options.timeout}),
        nonce(make_nonce(group)),
        writer(options.files, checkpoints, of, nonce,
               {.keep = options.keep, .timeout = options.timeout, .log = log}) {
    parts.emplace_back(kDefaultGenerator, track_generator(at::detail::getDefaultCPUGenerator()));
  }

  [[nodiscard]] std::vector<FileToStage> files_to_stage() const;
  [[nodiscard]] Manifest manifest(SaveReason reason, const StepEnd& end) const;
  void expect_resumed() const;
  void save(SaveReason reason, const StepEnd& end = {});
  void save_and_wait(SaveReason reason, const StepEnd& end = {});
  void judge_failure();
  void take_folder();

  const World world;
  const RunOptions options;
  const std::string checkpoints;
  const Log log;
  Parts parts;
  std::int64_t step = 0;
  std::int64_t saved_step = -1;                  // the last that was given to the writer, or loaded
  SaveReason saved_reason = SaveReason::import;  // of that one
  std::int64_t failures = 0;
  bool resumed = false;
  bool reserved = false;
  std::shared_ptr<const void> lock;  // rank 0's, on the folder
  StopSignals signals;
  ProcessGroup group;               // of its own: no call of the training can meet these
  std::optional<Work> last_answer;  // what all ranks said at the end of the step before
  const std::string nonce;
  Writer writer;
};

std::vector<FileToStage> Run::State::files_to_stage() const {
  std::vector<FileToStage> files;
  FileToStage own{rank_file(world.rank()), {}};
  for (const auto& [name, thing] : parts) {
    if (thing->is_per_rank()) {
      for (auto& [tensor_name, tensor] : thing->named_tensors()) {
        own.tensors.emplace_back(fmt::format("{}.{}", name, tensor_name), std::move(tensor));
      }
    } else if (world.rank() == 0) {
      auto tensors = thing->named_tensors();
      if (!tensors.empty()) files.push_back({part_file(name), std::move(tensors)});
    }
  }
  files.push_back(std::move(own));
  return files;
}

Manifest Run::State::manifest(SaveReason reason, const StepEnd& end) const {
  Manifest result{.lockstep_version = kVersion,
                  .step = step,
                  .world = world.size(),
                  .threads = at::get_num_threads(),
                  .seed = options.seed,
                  .data_id = options.data_id,
                  .failures = failures,
                  .reason = reason,
                  .kept_as = end.keep_as,
                  .configuration = options.configuration};
  if (world.rank() != 0) return result;
  for (const auto& [name, thing] : parts) {
    if (auto state = thing->state_json()) result.states.emplace(name, std::move(*state));
  }
  return result;
}

void Run::State::expect_resumed() const {
  if (resumed) return;
  throw UsageError(
      "call run.resume() before the first step: it goes on from the newest checkpoint, and starts "
      "afresh if there is none");
}

void Run::State::save(SaveReason reason, const StepEnd& end) {
  expect_resumed();
  if (step != saved_step) {
    writer.save(manifest(reason, end), files_to_stage());
  } else if (reason == SaveReason::finish && is_in_passing(saved_reason)) {
    writer.amend(step, reason, failures);
  } else {
    return;
  }
  saved_step = step;
  saved_reason = reason;
}

// What a run ends with must be there, whatever it does about the others.
void Run::State::save_and_wait(SaveReason reason, const StepEnd& end) {
  writer.wait(Deadline::after(options.timeout));
  judge_failure();
  save(reason, end);
  writer.wait(Deadline::after(options.timeout));
  if (const auto failure = writer.take_failure()) std::rethrow_exception(failure);
}

void Run::State::judge_failure() {
  const auto failure = writer.take_failure();
  if (!failure) return;
  saved_step = -1;
  if (options.on_save_failure == OnSaveFailure::stop) std::rethrow_exception(failure);
}

void Run::State::take_folder() {
  make_folders(*options.files, checkpoints);
  lock = options.files->try_lock(checkpoints);
  if (lock) return;
  throw UsageError(
      fmt::format("another run is using {}: end it first, or use another folder", checkpoints));
}

Run::Run(const World& world, const std::string& folder, RunOptions options)
    : state_(std::make_unique<State>(world, folder, std::move(options))) {}

Run::~Run() = default;

void Run::add(const std::string& name, std::unique_ptr<Tracked> thing) {
  if (!is_part_name(name) || name.starts_with("rank-")) {
    throw UsageError(
        fmt::format("\"{}\" is no name for a part of a checkpoint: 1 to 64 letters, "
                    "digits, _ and -, and not rank-…; give one with track_as()",
                    name));
  }
  for (const auto& [other, tracked] : state_->parts) {
    if (other == name) {
      throw UsageError(
          fmt::format("two tracked things are called \"{}\"; give one of them another "
                      "name with track_as()",
                      name));
    }
  }
  if (state_->resumed) {
    throw UsageError(fmt::format("track \"{}\" before resume(), which loads it", name));
  }
  state_->parts.emplace_back(name, std::move(thing));
}

std::int64_t Run::resume() {
  auto& state = *state_;
  auto& files = *state.options.files;
  if (state.world.rank() == 0) state.take_folder();
  const auto found = newest_common(files, state.checkpoints, state.group, state.log);
  if (found) {
    expect_same_run(found->manifest, state.options, state.world.rank(), state.log);
    take_in(files, *found, state.parts, state.world.rank(), state.world.size(), state.log);
    state.step = found->manifest.step;
    state.saved_step = state.step;
    state.saved_reason = found->manifest.reason;
    state.failures = found->manifest.failures + (is_in_passing(state.saved_reason) ? 1 : 0);
  }
  state.resumed = true;
  if (state.world.rank() == 0) {
    for (const auto& name : sweep(files, state.checkpoints)) {
      state.log.info(fmt::format("removed {}, which was never finished", name));
    }
    state.writer.start_from(state.step);
    state.log.info(found ? fmt::format("goes on after step {} from {}", state.step, found->path)
                         : fmt::format("starts afresh: no checkpoint in {}", state.checkpoints));
  }
  // No rank writes before all have read what is there, and what was left over is swept away.
  state.group.barrier({.name = "resumed"}).wait();
  return state.step;
}

bool Run::end_of_step(const StepEnd& end) {
  check(end);
  auto& state = *state_;
  state.expect_resumed();
  ++state.step;
  bool stop = false;
  if (state.last_answer) {
    state.last_answer->wait();
    const auto& riders = state.last_answer->riders();
    stop = riders.stop;
    if (riders.samples > 0) {  // so many ranks know of a save that failed; soon all do
      state.writer.wait(Deadline::after(state.options.timeout));
      state.judge_failure();
    }
  }
  if (stop) {
    state.last_answer.reset();
    state.save_and_wait(SaveReason::stop, end);
    if (state.world.rank() == 0) {
      state.log.info(fmt::format("told to stop: leaves after step {}, which is saved", state.step));
    }
    return true;
  }
  const auto every = state.options.save_every;
  if (every > 0 && state.step % every == 0) {
    state.save(SaveReason::periodic, end);
  } else if (!end.keep_as.empty()) {
    state.save(SaveReason::asked, end);
  } else if (every > 0 && !state.reserved) {
    state.writer.reserve(staged_bytes(state.files_to_stage()));
  }
  state.reserved = true;
  state.last_answer =
      state.group.barrier({.name = "end of step",
                           .riders = Riders{.samples = state.writer.has_failed() ? 1 : 0,
                                            .stop = state.signals.received() != 0}});
  return false;
}

void Run::save() { state_->save(SaveReason::asked); }

void Run::finish() {
  if (state_->last_answer) state_->last_answer->wait();
  state_->last_answer.reset();
  state_->save_and_wait(SaveReason::finish);
}

std::int64_t Run::step() const noexcept { return state_->step; }
std::int64_t Run::failures() const noexcept { return state_->failures; }

std::optional<int> Run::stop_signal() const noexcept {
  const int signal = state_->signals.received();
  return signal == 0 ? std::nullopt : std::optional(signal);
}

const std::string& Run::checkpoints_folder() const noexcept { return state_->checkpoints; }
WriterTimes Run::save_times() const { return state_->writer.times(); }

}  // namespace lockstep
