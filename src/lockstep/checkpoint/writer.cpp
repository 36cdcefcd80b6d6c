#include "lockstep/checkpoint/writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/scan.h"

namespace lockstep {
namespace {

WriterOptions checked(WriterOptions options) {
  if (options.keep < 2) {
    throw UsageError(
        fmt::format("keep is {}; at least 2 checkpoints are kept, so that a damaged "
                    "one is not the only one",
                    options.keep));
  }
  return options;
}

}  // namespace

using Clock = std::chrono::steady_clock;

Writer::Writer(std::shared_ptr<FileSystem> files, std::string folder, World world,
               std::string nonce, WriterOptions options)
    : files_(std::move(files)),
      folder_(std::move(folder)),
      world_(std::move(world)),
      nonce_(std::move(nonce)),
      options_(checked(options)),
      reports_(world_, nonce_),
      keep_{.newest = options_.keep},
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Writer::~Writer() {
  try {
    wait(Deadline::after(options_.timeout));
  } catch (const Error&) {  // it is stuck; asking it to stop is all that is left
  }
  if (const auto failure = take_failure()) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      options_.log.error(fmt::format("the last checkpoint was not written: {}", error.what()));
    }
  }
}

void Writer::reserve(std::size_t bytes) {
  wait(Deadline::after(options_.timeout));
  staging_.reserve(bytes);
}

void Writer::save(Manifest manifest, std::vector<FileToStage> files) {
  const auto begun = Clock::now();
  const auto deadline = Deadline::after(options_.timeout);
  wait(deadline);
  auto staged = staging_.stage(files);
  const std::lock_guard lock(mutex_);
  job_ = Job{num_saves_++, std::move(manifest), std::move(staged), deadline, Clock::now()};
  times_.stalled = Clock::now() - begun;
  changed_.notify_all();
}

void Writer::amend(std::int64_t step, SaveReason reason, std::int64_t failures) {
  const auto deadline = Deadline::after(options_.timeout);
  wait(deadline);
  const std::lock_guard lock(mutex_);
  Manifest change{.step = step, .failures = failures, .reason = reason};
  job_ = Job{num_saves_++, std::move(change), {}, deadline, Clock::now(), true};
  changed_.notify_all();
}

void Writer::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_until(lock, deadline.at(), [&] { return !job_; })) return;
  throw SystemError(fmt::format("the checkpoint of step {} is still being written to {}",
                                job_->manifest.step, folder_),
                    ETIMEDOUT);
}

bool Writer::has_failed() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

std::exception_ptr Writer::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, nullptr);
}

void Writer::start_from(std::int64_t step) {
  wait(Deadline::after(options_.timeout));
  if (step > 0) keep_.valid.insert(step);
  keep_.named = kept_steps(*files_, folder_, step);
  from_ = step;
}

std::int64_t Writer::last_committed() const {
  const std::lock_guard lock(mutex_);
  return last_committed_;
}

WriterTimes Writer::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

void Writer::run(const std::stop_token& stop) {
  while (true) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return job_.has_value(); })) return;
    Job& job = *job_;  // nobody else touches it until it is gone
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
    if (failure) failure_ = failure;
    job_.reset();
    changed_.notify_all();
  }
}

void Writer::write(Job& job, const std::stop_token& stop) {
  if (world_.rank() == 0 && job.amends) {
    amend_as_committer(job);
  } else if (world_.rank() == 0) {
    write_as_committer(job, stop);
  } else {
    write_as_other(job, stop);
  }
}

std::string Writer::nonce_of(const Job& job) const {
  return fmt::format("{}-{}", nonce_, job.number);
}

std::vector<FileRecord> Writer::write_files(const Job& job) {
  const auto where = temporary_path(folder_, job.manifest.step, nonce_of(job));
  make_folders(*files_, folder_);
  (void)files_->make_folder(where);  // another rank may have been first
  std::vector<FileRecord> records;
  for (const auto& file : job.files) {
    const std::array<std::span<const std::byte>, 2> pieces{file.head, file.data};
    records.push_back(write_durably(*files_, where, file.name, pieces));
  }
  return records;
}

void Writer::amend_as_committer(const Job& job) {
  try {
    auto manifest = read_manifest(*files_, folder_ + "/" + step_name(job.manifest.step)).manifest;
    manifest.reason = job.manifest.reason;
    manifest.failures = job.manifest.failures;
    lockstep::amend(*files_, folder_, manifest);
  } catch (const std::exception& error) {
    reports_.conclude(job.number,
                      fmt::format("the checkpoint of step {} is there, and could not be marked as "
                                  "the run's end: {}",
                                  job.manifest.step, error.what()),
                      job.deadline);
    throw;
  }
  reports_.conclude(job.number, "", job.deadline);
}

void Writer::write_as_committer(Job& job, const std::stop_token& stop) {
  const auto step = job.manifest.step;
  try {
    job.manifest.files = write_files(job);
    const auto others = reports_.collect(job.number, job.deadline, stop);
    job.manifest.files.insert(job.manifest.files.end(), others.begin(), others.end());
    if (from_) {
      const auto aside = set_newer_aside(*files_, folder_, *from_, nonce_);
      if (!aside.empty()) {
        options_.log.warning(fmt::format(
            "checkpoints of steps {} are not what this run goes on from and were renamed to "
            "step-<n>.aside-{}",
            fmt::join(aside, ", "), nonce_));
      }
      from_.reset();
    }
    commit(*files_, folder_, nonce_of(job), job.manifest);
  } catch (const std::exception& error) {
    remove_quietly(*files_, temporary_path(folder_, step, nonce_of(job)));
    const auto standing = keep_.valid.empty()
                              ? std::string("there is no earlier one")
                              : fmt::format("step {} is still the newest", *keep_.valid.rbegin());
    reports_.conclude(job.number,
                      fmt::format("the checkpoint of step {} was not written: {}; {}", step,
                                  error.what(), standing),
                      job.deadline);
    options_.log.error(fmt::format("the checkpoint of step {} was not written: {}; {}", step,
                                   error.what(), standing));
    throw;
  }
  job.committed = Clock::now();
  keep_.valid.insert(step);
  for (const auto& name : job.manifest.kept_as) keep_.named[name] = step;
  reports_.conclude(job.number, "", job.deadline);
  remove_old(job);
}

// The checkpoint is there: what cannot be removed takes room, and harms nothing else.
void Writer::remove_old(const Job& job) {
  try {
    prune(*files_, folder_, keep_, nonce_of(job));
    auto& valid = keep_.valid;
    while (valid.size() > static_cast<std::size_t>(keep_.newest)) valid.erase(valid.begin());
  } catch (const SystemError& error) {
    options_.log.warning(fmt::format("old checkpoints stay in {}: {}", folder_, error.what()));
  }
}

void Writer::write_as_other(Job& job, const std::stop_token& stop) {
  try {
    const auto records = job.amends ? std::vector<FileRecord>{} : write_files(job);
    for (const auto& record : records) reports_.report(job.number, record, job.deadline);
  } catch (const std::exception& error) {
    reports_.report_failure(job.number, error.what(), job.deadline);
    throw;
  }
  const auto failure = reports_.conclusion(job.number, job.deadline, stop);
  if (!failure.empty()) throw PeerError(0, failure);
  job.committed = Clock::now();
}

}  // namespace lockstep
