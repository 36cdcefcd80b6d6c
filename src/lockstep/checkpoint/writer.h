// Writes checkpoints while training goes on. save() copies into staging memory and returns; one
// thread writes, reports and, on rank 0, commits (commit.h). One save at a time: a second one waits
// until the first has left the memory, which bounds what is held and how far behind the disk is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
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
  int keep = 3;                       // the newest valid ones; at least 2
  std::chrono::seconds timeout{600};  // for one checkpoint to be written, by all ranks
  Log log = Log();
};

/// What the writer has done so far, for benchmarks and reports.
struct WriterTimes {
  std::chrono::nanoseconds stalled{0};  // in save(), the last time
  std::chrono::nanoseconds wrote{0};    // from there to the commit, the last time
};

class Writer {
 public:
  /// `folder` holds the checkpoints and is made when it is first written to; `nonce` is the same on
  /// all ranks and new for each run. Throws UsageError when fewer than 2 are to be kept.
  Writer(std::shared_ptr<FileSystem> files, std::string folder, World world, std::string nonce,
         WriterOptions options);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  /// Finishes the write under way, within its timeout.
  ~Writer();

  /// Makes the staging memory ready for so much.
  void reserve(std::size_t bytes);

  /// Stages `files`, those of this rank, and has them written; on rank 0 with `manifest`, to which
  /// the records of all files are added. Collective in the sense that every rank calls it for the
  /// same steps, in the same order. Returns when the tensors can be changed. Waits for the save
  /// before as settle() does; while that still has the memory, this save is skipped on all ranks:
  /// a failure. Throws UsageError for a tensor that no file can hold. What else goes wrong is for
  /// take_failure().
  void save(Manifest manifest, std::vector<FileToStage> files);

  /// Has the manifest of the checkpoint of `step`, which is committed, say that it was written for
  /// `reason` after so many `failures`. Every rank calls it, as save(), and hears how it ended.
  void amend(std::int64_t step, SaveReason reason, std::int64_t failures);

  /// Returns when nothing is being written; or when what is being written is so late that no rank
  /// waits for it any more, which is a failure for take_failure(), once.
  void settle();

  /// True when a save has failed and nobody has taken the failure yet.
  [[nodiscard]] bool has_failed() const;
  /// What ended the first save that failed since this was last called, if any; on other ranks than
  /// the one it happened to, a PeerError that says it.
  [[nodiscard]] std::exception_ptr take_failure();

  /// On rank 0: `step` was found whole, and a run that goes on from it will not see newer ones:
  /// they are set aside with the next commit. What is kept under a name by then stays kept.
  void start_from(std::int64_t step);
  [[nodiscard]] std::int64_t last_committed() const;  // -1: none by this writer
  [[nodiscard]] WriterTimes times() const;

 private:
  struct Job {
    SaveWait save;
    Manifest manifest;
    std::vector<StagedFile> files;
    std::chrono::steady_clock::time_point begun;
    bool amends = false;    // step, reason and failures of the manifest are all there is
    bool given_up = false;  // settle() has told of it
    std::chrono::steady_clock::time_point committed = begun;
  };

  [[nodiscard]] std::optional<std::int64_t> step_being_written() const;
  void start(std::int64_t number, Manifest manifest, std::vector<StagedFile> files, bool amends);
  void skip(std::int64_t number, std::int64_t step, std::int64_t busy_with);
  void tell_failure(std::int64_t number, const std::string& why);
  void run(const std::stop_token& stop);
  void write(Job& job, const std::stop_token& stop);
  void amend_as_committer(const Job& job);
  void write_as_committer(Job& job, const std::stop_token& stop);
  void write_as_other(Job& job, const std::stop_token& stop);
  void remove_old(const Job& job);
  void remove_abandoned();
  [[nodiscard]] std::vector<FileRecord> write_files(const Job& job);
  [[nodiscard]] std::string temporary_of(std::int64_t number, std::int64_t step) const;
  [[nodiscard]] std::string nonce_of(std::int64_t number) const;

  const std::shared_ptr<FileSystem> files_;  // shared: the run reads with it
  const std::string folder_;
  const World world_;
  const std::string nonce_;
  const WriterOptions options_;
  SaveReports reports_;
  Staging staging_;                   // save()'s while there is no job, the thread's while there is
  KeptSteps keep_;                    // the thread's while there is a job
  std::optional<std::int64_t> from_;  // the same
  std::int64_t num_saves_ = 0;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::optional<Job> job_;  // being written
  std::exception_ptr failure_;
  std::vector<std::string> abandoned_;  // on rank 0: folders of saves that failed
  std::int64_t last_committed_ = -1;
  WriterTimes times_;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace lockstep
