// Writes checkpoints in the background. save() copies the state into staging memory and returns; a
// thread writes it, reports to rank 0 and, on rank 0, commits (commit.h). There is one save at a
// time: a second one waits until the first has left the staging memory. This bounds the memory use
// and the delay of the disk.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/save_reports.h"
#include "lockstep/checkpoint/staging.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

struct WriterOptions {
  int keep = 3;                       // number of recent checkpoints to keep, at least 2
  std::chrono::seconds timeout{600};  // time limit for all ranks to write one checkpoint
  Log log = Log();
};

/// Times of the last save, for benchmarks and reports.
struct WriterTimes {
  std::chrono::nanoseconds stalled{0};  // duration of save()
  std::chrono::nanoseconds wrote{0};    // from the end of save() to the commit
};

class Writer {
 public:
  /// `folder` contains the checkpoints and is created by the first save. `nonce` is equal on all
  /// ranks and different in every run. Throws UsageError if options.keep is below 2.
  Writer(std::shared_ptr<FileSystem> files, std::string folder, World world, std::string nonce,
         WriterOptions options);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  /// Waits for the save in progress, within its timeout.
  ~Writer();

  /// Allocates staging memory for `files` in advance.
  void reserve(std::span<const FileToStage> files);

  /// Stages this rank's `files` and starts their write. On rank 0, `manifest` is completed with the
  /// records of all files and committed; on other ranks it is ignored except for the step.
  /// Every rank calls it for the same steps, in the same order.
  /// Waits for the previous save as settle() does. If that save still uses the staging memory, this
  /// save is skipped on all ranks and counts as a failure. Returns when the tensors may change.
  /// Throws UsageError for an unsupported tensor. Other errors are returned by take_failure().
  void save(Manifest manifest, std::vector<FileToStage> files);

  /// Changes `reason` and `failures` in the manifest of the committed checkpoint of `step`. Every
  /// rank calls it, as save(). Errors are returned by take_failure() on all ranks.
  void amend(std::int64_t step, SaveReason reason, std::int64_t failures);

  /// Returns when no save is in progress, or when the save in progress is so late that no rank
  /// waits for it any more. The latter is a failure for take_failure(), once.
  void settle();

  /// True if a save has failed and take_failure() has not yet returned its error.
  [[nodiscard]] bool has_failed() const;
  /// The error of the first save that has failed since the last call, or null. On ranks other than
  /// the one that failed, it is a PeerError with the cause.
  [[nodiscard]] std::exception_ptr take_failure();

  /// For rank 0: the run resumes from `step`, which is valid. The next commit renames newer
  /// checkpoints (set_newer_aside). Checkpoints up to `step` that are kept under a name stay kept.
  void start_from(std::int64_t step);
  [[nodiscard]] std::int64_t last_committed() const;  // -1: no commit by this writer
  [[nodiscard]] WriterTimes times() const;

 private:
  struct Job {
    SaveWait save;
    Manifest manifest;
    std::vector<FileToWrite> files;
    std::chrono::steady_clock::time_point begun;
    bool amends = false;    // only step, reason and failures of the manifest are used
    bool given_up = false;  // settle() has reported it as a failure
    std::chrono::steady_clock::time_point committed = begun;
  };

  [[nodiscard]] std::optional<std::int64_t> step_being_written() const;
  void start(std::int64_t number, Manifest manifest, std::vector<FileToWrite> files, bool amends);
  void skip(std::int64_t number, std::int64_t step, std::int64_t busy_with);
  void tell_failure(std::int64_t number, const std::string& why);
  void run(const std::stop_token& stop);
  void write(Job& job, const std::stop_token& stop);
  void amend_as_committer(const Job& job);
  void write_as_committer(Job& job, const std::stop_token& stop);
  void write_as_other(Job& job, const std::stop_token& stop);
  void remove_old(const Job& job);
  void remove_abandoned();
  [[nodiscard]] std::vector<FilePart> write_files(const Job& job);
  [[nodiscard]] std::string temporary_of(std::int64_t number, std::int64_t step) const;
  [[nodiscard]] std::string nonce_of(std::int64_t number) const;

  const std::shared_ptr<FileSystem> files_;  // shared: the run reads with it
  const std::string folder_;
  const World world_;
  const std::string nonce_;
  const WriterOptions options_;
  SaveReports reports_;
  Staging staging_;                   // used by the thread while there is a job, else by save()
  KeptSteps keep_;                    // used by the thread while there is a job
  std::optional<std::int64_t> from_;  // likewise
  std::int64_t num_saves_ = 0;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::optional<Job> job_;  // in progress
  std::exception_ptr failure_;
  std::vector<std::string> abandoned_;  // on rank 0: folders of saves that failed
  std::int64_t last_committed_ = -1;
  WriterTimes times_;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace lockstep
