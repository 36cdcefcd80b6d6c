// The state of a Run. It decides when to save and how to react to a failed save, identically on all
// ranks. writer.h writes.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/folder_lock.h"
#include "lockstep/checkpoint/resuming_internal.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/stop_signals.h"
#include "lockstep/checkpoint/writer.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// True for a reason that does not end a run: if the newest checkpoint has it, the run was
/// interrupted.
[[nodiscard]] bool is_intermediate(SaveReason reason) noexcept;

struct Run::State {
  State(const World& of, const std::string& folder, RunOptions chosen);

  [[nodiscard]] std::vector<FileToStage> files_to_stage() const;
  [[nodiscard]] Manifest manifest(SaveReason reason, const StepEnd& end) const;
  void expect_resumed() const;
  void save(SaveReason reason, const StepEnd& end = {});
  void save_and_wait(SaveReason reason, const StepEnd& end = {});
  // The call flags of each rank at the end of each step and save.
  static constexpr std::uint32_t kSaveFailed = 1;
  static constexpr std::uint32_t kStop = 2;  // it has received a stop signal
  [[nodiscard]] CallFlags flags() const;
  [[nodiscard]] static bool any_stops(const GroupFlags& all);
  [[nodiscard]] bool has_failed(const GroupFlags& all);
  [[nodiscard]] bool any_save_failed();
  void judge_failure();
  [[noreturn]] void throw_failure();
  void lock_folder();
  void sweep_folder();
  void warn_of_lost_steps() noexcept;

  const World world;
  const RunOptions options;
  const std::string checkpoints;
  const Log log;
  Parts parts;
  std::int64_t step = 0;
  std::int64_t saved_step = -1;                  // the last one given to the writer, or loaded
  SaveReason saved_reason = SaveReason::import;  // of saved_step
  std::int64_t failures = 0;
  bool resumed = false;
  bool reserved = false;
  bool parts_are_equal = false;    // where they must be; compared by the first save
  bool ended = false;              // by finish() or a stop signal
  std::int64_t resumed_from = -1;  // -1: started from step 0
  FolderLock lock;                 // on rank 0
  int failed_rank = 0;             // the lowest rank whose last save failed
  const int num_exceptions = std::uncaught_exceptions();
  StopSignals signals;
  ProcessGroup group;               // separate, so that its calls never mix with training's
  std::optional<Work> last_answer;  // the barrier of the previous step's end, with all ranks' flags
  const std::string nonce;
  Writer writer;
};

}  // namespace lockstep
