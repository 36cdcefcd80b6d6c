// Checkpointing for a training loop: saves periodically, resumes after a stop or a crash, and ends
// all ranks at the same step after a stop signal.
//
//   lockstep::Run run(world, "runs/mine", {.save_every = 100});
//   run.track("model", net);
//   run.track("optimizer", optimizer);
//   run.track("loader", loader);
//   run.resume();                     // loads the newest valid checkpoint, if there is one
//   while (run.step() < steps) {
//     …
//     if (run.end_of_step()) break;   // after each optimizer step; true after a stop signal
//   }
//   run.finish();
//
// Change tracked objects only as part of a step, before its end_of_step(). A later change is not in
// the checkpoint of that step and is lost if the run resumes from it.
//
// State that is equal on all ranks (model, optimizer, loader) is saved once: by rank 0, or, if a
// tracked object is sharded, by all ranks together, each a part. Each rank writes its own state:
// that of LibTorch's default random generator and of tracked generators. A resumed run is
// bit-identical to an uninterrupted one if its steps depend only on tracked state
// (docs/checkpoint_format.md). The program chooses its exit code. After a stop signal, 0 is
// appropriate, because nothing is lost; stop_signal() returns the signal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/tracked.h"
#include "lockstep/checkpoint/writer.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// The reaction to a checkpoint that could not be written.
enum class OnSaveFailure {
  stop,  // end_of_step() throws on all ranks, in the same step
  warn,  // the failure is logged and training continues; the next save is tried when it is due. The
         // last save of a run, by finish() or after a stop signal, still throws
};

struct RunOptions {
  std::int64_t save_every = 0;       // steps between saves; 0: only save(), finish(), stop signals
  int keep = 3;                      // number of recent checkpoints to keep, at least 2
  std::uint64_t seed = 0;            // stored; resume() refuses a checkpoint with another seed
  std::uint64_t data_id = 0;         // stored and compared likewise (Dataset::id()); 0: none. Not
                                     // needed if the loader is tracked: it compares its own
  std::string configuration = "{}";  // stored; any JSON value. If a checkpoint has another one,
                                     // rank 0 logs a warning, and the run resumes
  /// Translates a stored configuration, which an earlier version of the program may have written,
  /// before resume() compares it with `configuration`; empty: no translation.
  std::function<std::string(const std::string& stored)> translate_configuration = {};
  OnSaveFailure on_save_failure = OnSaveFailure::stop;
  std::chrono::seconds timeout{600};  // time limit for writing a checkpoint; a slower save fails.
                                      // Ranks wait for each other 20 s longer
  std::optional<Log> log = {};        // default: standard error, with the rank
  std::shared_ptr<FileSystem> files = local_file_system();
};

/// Options of one end_of_step() call.
struct StepEnd {
  /// If not empty: saves this step, even if no save is due, and keeps the checkpoint under each of
  /// these names until a later step is kept under the same name: {.keep_as = {"best"}}. A name has
  /// 1 to 64 letters, digits, _ and -.
  std::vector<std::string> keep_as = {};
};

class Run {
 public:
  /// Prepares checkpoints in <folder>/checkpoints, which must be the same folder on all ranks.
  /// While the Run exists, the signals TERM, INT, USR1 and USR2 request a stop; a second INT or
  /// TERM acts as without a Run (stop_signals.h).
  /// Collective: every rank constructs its Run.
  /// Throws UsageError for invalid options, PeerError if a rank is lost or late.
  Run(const World& world, const std::string& folder, RunOptions options = {});
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  /// Completes the save in progress and restores the signal handlers. Does not save: call finish().
  /// Rank 0 logs a warning if there are unsaved steps, except during stack unwinding, because the
  /// exception then states why the run ended.
  ~Run();

  /// Adds `thing` as the part `name` of every checkpoint. `thing` is borrowed and must outlive the
  /// Run: a module, optimizer or generator of LibTorch, or an object as in tracked.h.
  /// Call it before resume(), with the same names in every start of the run: resume() refuses a
  /// checkpoint with other parts. A name has 1 to 64 letters, digits, _ and -, and does not begin
  /// with "rank-". `lockstep ckpt` and `lockstep generate` expect the model under "model".
  /// Throws UsageError for an invalid or repeated name, and after resume().
  template <typename Thing>
  void track(const std::string& name, Thing& thing) {
    add(name, tracked(thing));
  }

  /// Loads the newest checkpoint that is valid on every rank into the tracked objects, in place,
  /// and returns its step; returns 0 and loads nothing if the folder has no checkpoint. A
  /// checkpoint that is skipped is logged with the reason.
  /// Collective: every rank calls it once, after track() and before the first step.
  /// Returns when all ranks have loaded.
  /// Throws UsageError if there are checkpoints but none is valid on every rank (it never starts
  /// from step 0 silently), if the checkpoint does not match the tracked objects (the message
  /// names every difference), or if another run uses the folder. Tracked objects are then in an
  /// unspecified state. Throws PeerError if a rank is lost or late.
  std::int64_t resume();

  /// Ends a step and saves if a save is due. Returns true if the loop must end: a rank received a
  /// stop signal during the previous step, and a checkpoint of this step has been committed.
  /// Collective: every rank calls it once per optimizer step, not per micro-batch, and gets the
  /// same result. A due save only copies the state; a background thread writes it.
  /// Throws the error of a background save (see OnSaveFailure), PeerError if a rank is lost,
  /// UsageError before resume() and for an invalid name in `end`.
  /// Call an evaluation before end_of_step(), and track its result (for example the best loss so
  /// far): the result is then in the checkpoint of the step that it belongs to.
  [[nodiscard]] bool end_of_step(const StepEnd& end = {});

  /// Saves the state after the last end_of_step(), as a due save does. Call it after end_of_step()
  /// and before tracked objects change again (the loader: before its next batch). No effect if the
  /// step is already saved.
  /// Collective. Waits for an earlier save in progress; returns when the state has been copied.
  /// Throws UsageError before resume(). end_of_step() or finish() throws the error of the write.
  void save();
  /// Saves the state after the last end_of_step() as the end of the run and returns when it has
  /// been committed. If the step is already saved, only its manifest changes. A finished run can
  /// resume and make more steps. Collective. Throws as end_of_step().
  void finish();

  /// Number of completed steps.
  [[nodiscard]] std::int64_t step() const noexcept;
  /// Number of restarts after an unclean exit.
  [[nodiscard]] std::int64_t failures() const noexcept;
  /// The stop signal that this rank has received. Empty on a rank that has received none, even if
  /// another rank has.
  [[nodiscard]] std::optional<int> stop_signal() const noexcept;
  /// The step of the newest checkpoint that this process has written; -1: none. On rank 0 it is
  /// committed.
  [[nodiscard]] std::int64_t saved_step() const;
  /// <folder>/checkpoints.
  [[nodiscard]] const std::string& checkpoints_folder() const noexcept;
  /// The time that the last save delayed its step, and the time until it was written.
  [[nodiscard]] WriterTimes save_times() const;

 private:
  struct State;

  void add(const std::string& name, std::unique_ptr<Tracked> thing);

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
