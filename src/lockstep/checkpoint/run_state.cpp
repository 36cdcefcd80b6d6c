#include "lockstep/checkpoint/run_state_internal.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/equal_parts_internal.h"
#include "lockstep/collectives/gather_values.h"

namespace lockstep {
namespace {

constexpr char kDefaultGenerator[] = "default_generator";

// A random number drawn by rank 0, as text, equal on all ranks and different in every run.
std::string make_nonce(const ProcessGroup& group) {
  std::uint64_t bits = 0;
  if (group.rank() == 0 && ::getrandom(&bits, sizeof bits, 0) != sizeof bits) {
    throw SystemError("cannot read random bits for the names of unfinished checkpoints", errno);
  }
  return fmt::format("{:016x}", broadcast_value(group, bits, 0, {.name = "run nonce"}));
}

RunOptions checked(RunOptions options) {
  if (options.save_every < 0) {
    throw UsageError(
        fmt::format("save_every is {}; it must be a number of steps, or 0 for no periodic saves",
                    options.save_every));
  }
  Manifest probe;
  probe.configuration = options.configuration;
  // Throws if it is not JSON; the result has the manifest's spelling, for the later comparison.
  options.configuration = manifest_from_text(to_text(probe)).configuration;
  return options;
}

}  // namespace

bool is_intermediate(SaveReason reason) noexcept {
  return reason == SaveReason::periodic || reason == SaveReason::asked;
}

Run::State::State(const World& of, const std::string& folder, RunOptions chosen)
    : world(of),
      options(checked(std::move(chosen))),
      checkpoints(folder + "/checkpoints"),
      log(options.log.value_or(Log({.rank = of.rank()}))),
      group(of, {.name = "run", .timeout = options.timeout + 4 * kTellingTime}),
      nonce(make_nonce(group)),
      writer(options.files, checkpoints, of, nonce,
             {.keep = options.keep, .timeout = options.timeout, .log = log}) {
  parts.emplace_back(kDefaultGenerator, track_generator(at::detail::getDefaultCPUGenerator()));
}

std::vector<FileToStage> Run::State::files_to_stage() const {
  std::vector<FileToStage> files;
  FileToStage own{rank_file(world.rank()), {}};
  bool any_sharded = false;
  for (const auto& [name, thing] : parts) {
    for (auto& [tensor_name, tensor] : own_tensors(*thing)) {
      own.tensors.emplace_back(fmt::format("{}.{}", name, tensor_name), std::move(tensor));
    }
    if (thing->is_per_rank()) continue;
    FileToStage file{.name = part_file(name), .tensors = thing->named_tensors()};
    file.sharded = thing->sharded_tensors();
    const auto equal =
        file.tensors.begin() + static_cast<std::ptrdiff_t>(thing->num_equal(file.tensors));
    file.of_rank_0.assign(equal, file.tensors.end());
    file.tensors.erase(equal, file.tensors.end());
    any_sharded = any_sharded || !file.sharded.empty();
    if (!file.tensors.empty() || !file.of_rank_0.empty() || !file.sharded.empty()) {
      files.push_back(std::move(file));
    }
  }
  // Sharded tensors need all ranks, which then also divide the other tensors. Otherwise rank 0
  // writes the parts alone, so that a save needs no memory and no disk of the other ranks.
  if (any_sharded) {
    for (auto& file : files) {
      file.rank = world.rank();
      file.num_ranks = world.size();
    }
  } else if (world.rank() != 0) {
    files.clear();
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
      "call run.resume() before the first step: it loads the newest checkpoint, or starts from "
      "step 0 if there is none");
}

void Run::State::save(SaveReason reason, const StepEnd& end) {
  expect_resumed();
  if (step != saved_step) {
    // Once: a kind of state that differs between ranks does so from its first steps on.
    if (!std::exchange(parts_are_equal, true)) expect_equal_parts(parts, group);
    writer.save(manifest(reason, end), files_to_stage());
  } else if (reason == SaveReason::finish && is_intermediate(saved_reason)) {
    writer.amend(step, reason, failures);
  } else {
    return;
  }
  saved_step = step;
  saved_reason = reason;
}

// The last checkpoint of a run must be written, with OnSaveFailure::warn too.
void Run::State::save_and_wait(SaveReason reason, const StepEnd& end) {
  if (any_save_failed()) judge_failure();
  save(reason, end);
  if (any_save_failed()) throw_failure();
}

// Whether the save in progress has failed on any rank. Collective; equal on all ranks.
bool Run::State::any_save_failed() {
  writer.settle();
  auto answer = group.barrier({.name = "save ended", .flags = flags()});
  answer.wait();
  return has_failed(answer.flags());
}

// Only ranks whose save has failed count as present, so that GroupFlags names the first of them.
CallFlags Run::State::flags() const {
  const bool failed = writer.has_failed();
  CallFlags flags{.absent = !failed};
  if (failed) flags.any |= kSaveFailed;
  if (signals.received() != 0) flags.any |= kStop;
  return flags;
}

bool Run::State::any_stops(const GroupFlags& all) { return (all.any & kStop) != 0; }

bool Run::State::has_failed(const GroupFlags& all) {
  if ((all.any & kSaveFailed) == 0) return false;
  failed_rank = all.first_present;
  return true;
}

// Every rank calls this when a save has failed on any rank, so that all agree on the last saved
// step and on the number of the next save.
void Run::State::judge_failure() {
  writer.settle();
  if (options.on_save_failure == OnSaveFailure::stop) throw_failure();
  saved_step = -1;
  (void)writer.take_failure();
}

void Run::State::throw_failure() {
  saved_step = -1;
  if (const auto failure = writer.take_failure()) std::rethrow_exception(failure);
  throw PeerError(
      failed_rank,
      fmt::format("the last checkpoint failed on rank {}; the message of rank {} states "
                  "the reason",
                  failed_rank, failed_rank));
}

void Run::State::lock_folder() {
  make_folders(*options.files, checkpoints);
  lock = options.files->try_lock(checkpoints);
  if (!lock.held) {
    throw UsageError(
        fmt::format("another run is using {} ({}); stop that run, or use another folder",
                    checkpoints, lock.owner));
  }
  if (lock.missing.empty()) return;
  log.warning(fmt::format(
      "{}; a second run in this folder is not detected, and unfinished checkpoints of earlier runs "
      "are not removed",
      lock.missing));
}

// This process has the lock, so no live run uses the unfinished folders.
void Run::State::sweep_folder() {
  if (!lock.missing.empty()) return;
  const auto swept = sweep(*options.files, checkpoints);
  for (const auto& name : swept.removed) {
    log.info(fmt::format("removed the unfinished checkpoint {}", name));
  }
  for (const auto& stays : swept.stays) log.warning(stays);
}

void Run::State::warn_of_lost_steps() noexcept {
  if (world.rank() != 0 || ended || step == 0 || step == saved_step) return;
  if (std::uncaught_exceptions() > num_exceptions) return;
  try {
    writer.settle();
    const auto newest = std::max(writer.last_committed(), resumed_from);
    log.warning(fmt::format("the run ended at step {} without finish(): {}", step,
                            newest < 0
                                ? std::string("there is no checkpoint")
                                : fmt::format("the newest checkpoint is of step {}", newest)));
  } catch (const std::exception&) {  // only the warning is lost
  }
}

}  // namespace lockstep
