// What a Run knows, and how it saves: when a save is due and what becomes of one that fails is
// decided here, alike on all ranks; writer.h writes.
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

/// True for a reason that ends no run: one whose newest checkpoint has it was broken off.
[[nodiscard]] bool is_in_passing(SaveReason reason) noexcept;

struct Run::State {
  State(const World& of, const std::string& folder, RunOptions chosen);

  [[nodiscard]] std::vector<FileToStage> files_to_stage() const;
  [[nodiscard]] Manifest manifest(SaveReason reason, const StepEnd& end) const;
  void expect_resumed() const;
  void save(SaveReason reason, const StepEnd& end = {});
  void save_and_wait(SaveReason reason, const StepEnd& end = {});
  // What a rank says at the end of each step and save.
  static constexpr std::uint32_t kSaveFailed = 1;
  static constexpr std::uint32_t kStop = 2;  // it was told to stop
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
  std::int64_t saved_step = -1;                  // the last that was given to the writer, or loaded
  SaveReason saved_reason = SaveReason::import;  // of that one
  std::int64_t failures = 0;
  bool resumed = false;
  bool reserved = false;
  bool ended = false;              // by finish() or a stop
  std::int64_t resumed_from = -1;  // -1: afresh
  FolderLock lock;                 // rank 0's
  int failed_rank = 0;             // the lowest whose save failed, of the last that did
  const int num_exceptions = std::uncaught_exceptions();
  StopSignals signals;
  ProcessGroup group;               // of its own: no call of the training can meet these
  std::optional<Work> last_answer;  // what all ranks said at the end of the step before
  const std::string nonce;
  Writer writer;
};

}  // namespace lockstep
