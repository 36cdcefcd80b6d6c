// The Writer's thread: writes, reports and, on rank 0, commits.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/writer.h"
#include "lockstep/trace/span.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// A write beyond the file size limit (ulimit -f) sends SIGXFSZ to the writing thread, which ends
// the process by default. With the signal blocked in this thread, the write fails with EFBIG.
void block_file_size_signal() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// For rank 0: the other ranks rely on the deadline.
void expect_in_time(const SaveWait& save, Clock::duration took) {
  if (!save.deadline.expired()) return;
  throw SystemError(
      fmt::format("rank 0 took {:.1f} s to write its part of the checkpoint of step {}, longer "
                  "than the timeout of {} s; raise RunOptions::timeout",
                  seconds(took), save.step, save.timeout.count()),
      ETIME);
}

}  // namespace

void Writer::run(const std::stop_token& stop) {
  const AlternateSignalStack signal_stack;
  block_file_size_signal();
  while (true) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return job_.has_value(); })) return;
    Job& job = *job_;  // until it is reset, other threads use only given_up
    lock.unlock();
    std::exception_ptr failure;
    try {
      write(job, stop);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (!job.amends) times_.wrote = job.committed - job.begun;
    if (!failure) last_committed_ = job.manifest.step;
    if (failure && !failure_ && !job.given_up) failure_ = failure;  // the first; others follow it
    job_.reset();
    changed_.notify_all();
  }
}

void Writer::write(Job& job, const std::stop_token& stop) {
  std::int64_t bytes = 0;
  for (const auto& file : job.files) {
    for (const auto& extent : file.extents) bytes += std::ssize(extent.bytes);
  }
  const Span span(process_trace(),
                  {.bytes = bytes, .kind = EventKind::checkpoint_write, .lane = Lane::checkpoint});
  if (world_.rank() == 0 && job.amends) {
    amend_as_committer(job);
  } else if (world_.rank() == 0) {
    write_as_committer(job, stop);
  } else {
    write_as_other(job, stop);
  }
}

std::string Writer::nonce_of(std::int64_t number) const {
  return fmt::format("{}-{}", nonce_, number);
}

std::string Writer::temporary_of(std::int64_t number, std::int64_t step) const {
  return temporary_path(folder_, step, nonce_of(number));
}

std::vector<FilePart> Writer::write_files(const Job& job) {
  const auto where = temporary_of(job.save.number, job.save.step);
  make_folders(*files_, folder_);
  (void)files_->make_folder(where);  // another rank may have been first
  staging_.arrive();
  std::vector<FilePart> parts;
  for (const auto& file : job.files) parts.push_back(write_durably(*files_, where, file));
  return parts;
}

void Writer::amend_as_committer(const Job& job) {
  const auto step = job.save.step;
  try {
    auto manifest = read_manifest(*files_, folder_ + "/" + step_name(step)).manifest;
    manifest.reason = job.manifest.reason;
    manifest.failures = job.manifest.failures;
    lockstep::amend(*files_, folder_, manifest);
  } catch (const std::exception& error) {
    tell_failure(job.save.number,
                 fmt::format("the checkpoint of step {} is committed, but could not be marked as "
                             "the end of the run: {}",
                             step, error.what()));
    throw;
  }
  reports_.conclude(job.save.number, "");
}

void Writer::write_as_committer(Job& job, const std::stop_token& stop) {
  const auto step = job.save.step;
  try {
    remove_abandoned();
    auto parts = write_files(job);
    expect_in_time(job.save, Clock::now() - job.begun);
    std::ranges::move(reports_.collect(job.save, stop), std::back_inserter(parts));
    job.manifest.files = combine_parts(parts);
    if (from_) {
      const auto aside = set_newer_aside(*files_, folder_, *from_, nonce_);
      if (!aside.empty()) {
        options_.log.warning(fmt::format(
            "the checkpoints of steps {} are newer than step {}, from which this run resumed; they "
            "were renamed to step-<n>.aside-{}",
            fmt::join(aside, ", "), *from_, nonce_));
      }
      from_.reset();
    }
    commit(*files_, folder_, nonce_of(job.save.number), job.manifest);
  } catch (const std::exception& error) {
    const auto standing =
        keep_.valid.empty()
            ? std::string("there is no earlier checkpoint")
            : fmt::format("the newest checkpoint is still that of step {}", *keep_.valid.rbegin());
    const auto why = fmt::format("the checkpoint of step {} was not written: {}; {}", step,
                                 error.what(), standing);
    options_.log.error(why);
    tell_failure(job.save.number, why);  // before the folder is removed: see write_as_other
    const auto where = temporary_of(job.save.number, step);
    remove_quietly(*files_, where);
    const std::lock_guard lock(mutex_);
    abandoned_.push_back(where);  // a late rank may create it again
    throw;
  }
  job.committed = Clock::now();
  keep_.valid.insert(step);
  for (const auto& name : job.manifest.kept_as) keep_.named[name] = step;
  reports_.conclude(job.save.number, "");
  remove_old(job);
  if (job.committed > job.save.deadline.at() + kTellingTime && world_.size() > 1) {
    throw SystemError(
        fmt::format("the checkpoint of step {} is committed, but rank 0 took {:.1f} s, longer than "
                    "the timeout of {} s, and other ranks may not have waited; raise "
                    "RunOptions::timeout",
                    step, seconds(job.committed - job.begun), options_.timeout.count()),
        ETIME);
  }
}

// The checkpoint is committed. Old files that cannot be removed only use disk space.
void Writer::remove_old(const Job& job) {
  try {
    for (const auto& stays : prune(*files_, folder_, keep_, nonce_of(job.save.number))) {
      options_.log.warning(fmt::format("an old checkpoint was not removed completely: {}", stays));
    }
    auto& valid = keep_.valid;
    while (valid.size() > static_cast<std::size_t>(keep_.newest)) valid.erase(valid.begin());
  } catch (const SystemError& error) {
    options_.log.warning(
        fmt::format("old checkpoints in {} were not removed: {}", folder_, error.what()));
  }
}

void Writer::remove_abandoned() {
  std::vector<std::string> paths;
  {
    const std::lock_guard lock(mutex_);
    paths.swap(abandoned_);
  }
  for (const auto& path : paths) remove_quietly(*files_, path);
}

void Writer::write_as_other(Job& job, const std::stop_token& stop) {
  try {
    if (!job.amends) reports_.report(job.save.number, write_files(job));
  } catch (const std::exception& error) {
    // Rank 0 removes the folder of a save that it has given up. The cause is then rank 0's message,
    // not the error of a file in that folder.
    if (const auto failure = reports_.try_failure(job.save.number)) throw PeerError(0, *failure);
    tell_failure(job.save.number, error.what());
    throw;
  }
  const auto failure = reports_.conclusion(job.save, stop);
  if (!failure.empty()) throw PeerError(0, failure);
  job.committed = Clock::now();
}

}  // namespace lockstep
