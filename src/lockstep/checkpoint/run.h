// Checkpoints for one's own loop: saves when due, goes on after a stop or a crash, and lets all
// ranks leave together when one is told to.
//
//   lockstep::Run run(world, "runs/mine", {.save_every = 100});
//   run.track("model", net);
//   run.track("optimizer", optimizer);
//   run.track("loader", loader);
//   run.resume();                     // the newest valid one, or fresh if there is none
//   while (run.step() < steps) {
//     …
//     if (run.end_of_step()) break;   // TERM, INT, USR1 or USR2 came to some rank
//   }
//   run.finish();
//
// Rank 0 writes what all ranks have alike; each rank writes what is its own: the state of
// LibTorch's default random generator, and of generators that are tracked. A run that goes on has
// the bits of one that was never broken, if its steps depend on nothing but what is tracked (docs/
// checkpoint_format.md). The program's exit code is its own: after a stop by signal, 0 is right,
// for nothing was lost; stop_signal() tells.
#pragma once

#include <chrono>
#include <cstdint>
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

/// What becomes of a run whose checkpoint could not be written.
enum class OnSaveFailure {
  stop,   // end_of_step() throws on all ranks, in the same step
  go_on,  // it is logged; the next one is tried when it is due. finish() and a stop by signal throw
          // all the same, when theirs fails
};

struct RunOptions {
  std::int64_t save_every = 0;       // steps; 0: only when asked, at a stop and at the end
  int keep = 3;                      // so many of the newest valid ones stay; at least 2
  std::uint64_t seed = 0;            // noted; a run with another one refuses to go on
  std::uint64_t data_id = 0;         // the same; 0: none
  std::string configuration = "{}";  // noted; any JSON
  OnSaveFailure on_save_failure = OnSaveFailure::stop;
  std::chrono::seconds timeout{600};  // for a checkpoint to be written: a slower one has failed;
                                      // ranks wait for each other 20 s longer
  std::optional<Log> log = {};        // none: standard error, with the rank
  std::shared_ptr<FileSystem> files = local_file_system();
};

/// What the end of one step is to do beside what is due.
struct StepEnd {
  /// Saves this step, due or not, and keeps it under each of these names, of letters, digits, _ and
  /// -, until a later step is kept under the same: {.keep_as = {"best"}}.
  std::vector<std::string> keep_as = {};
};

class Run {
 public:
  /// Checkpoints go to <folder>/checkpoints, which all ranks see. From here on the four signals ask
  /// for a stop; a second INT or TERM acts as before (stop_signals.h). Collective: every rank makes
  /// its Run. Throws UsageError for options that cannot be, PeerError for ranks that are lost or
  /// late.
  Run(const World& world, const std::string& folder, RunOptions options = {});
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  /// Finishes the write under way and puts the signals back. Does not save: finish() does. Rank 0
  /// warns when steps are not saved; not while an exception passes, which says why the run ended.
  ~Run();

  /// Borrows `thing`, to be saved and loaded as the part `name` of every checkpoint. Before
  /// resume(), with the same names in every start of the run. A name has 1 to 64 letters, digits,
  /// _ and -; `lockstep ckpt` and `generate` look for a model under "model".
  /// Throws UsageError for any other name, for one that is in use, and after resume().
  template <typename Thing>
  void track(const std::string& name, Thing& thing) {
    add(name, tracked(thing));
  }

  /// Loads the newest checkpoint that is valid on every rank into what is tracked, and returns its
  /// step; 0 when the folder has none. Collective; each checkpoint that is passed over is logged
  /// with its reason. Throws UsageError when there are checkpoints and none is valid everywhere,
  /// and when the one to load does not fit what is tracked, naming every difference: never a fresh
  /// start in silence. What is tracked is in no certain state then. Also when another run is using
  /// the folder.
  std::int64_t resume();

  /// Ends a step: saves if it is due, and returns true when the loop is to be left: a signal came
  /// to some rank in the step before, and a checkpoint of this step is on the disk. Collective:
  /// every rank ends the same steps and is told the same. Throws what a save in the background has
  /// thrown, PeerError for ranks that are lost, UsageError before resume().
  /// An evaluation belongs in the step, before this: what it finds (the best loss so far, tracked)
  /// is then saved with the step it was found at, and no break comes between the two.
  [[nodiscard]] bool end_of_step(const StepEnd& end = {});

  /// Saves now, as when it is due. Collective.
  void save();
  /// Saves the step that is done and returns when it is on the disk, marked as the run's end; if it
  /// was saved already, when it was due, only the mark is new. Collective. Throws as end_of_step.
  void finish();

  /// Steps done.
  [[nodiscard]] std::int64_t step() const noexcept;
  /// How often the run went on from a checkpoint that it had not ended with.
  [[nodiscard]] std::int64_t failures() const noexcept;
  /// The signal that this rank has had; none may have come to it while others had one.
  [[nodiscard]] std::optional<int> stop_signal() const noexcept;
  [[nodiscard]] const std::string& checkpoints_folder() const noexcept;
  /// How long the last save held up its step, and how long it took to be written.
  [[nodiscard]] WriterTimes save_times() const;

 private:
  struct State;

  void add(const std::string& name, std::unique_ptr<Tracked> thing);

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
