#include "lockstep/checkpoint/writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/trace/span.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

WriterOptions checked(WriterOptions options) {
  if (options.keep < 2) {
    throw UsageError(
        fmt::format("keep is {}; it must be at least 2, so that a damaged checkpoint is not the "
                    "only one",
                    options.keep));
  }
  return options;
}

}  // namespace

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
  settle();
  if (const auto failure = take_failure()) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      options_.log.error(fmt::format("the last checkpoint was not written: {}", error.what()));
    }
  }
}

void Writer::reserve(std::span<const FileToStage> files) {
  settle();
  if (!step_being_written()) staging_.reserve(files);
}

void Writer::save(Manifest manifest, std::vector<FileToStage> files) {
  const auto begun = Clock::now();
  const auto number = num_saves_++;  // counts skipped saves too, so that all ranks count equally
  settle();
  if (const auto busy_with = step_being_written()) return skip(number, manifest.step, *busy_with);
  auto staged = [&] {
    const Span span(process_trace(), {.kind = EventKind::checkpoint_stage, .lane = Lane::compute});
    return staging_.stage(files);
  }();
  if (const auto remark = staging_.take_remark(); !remark.empty()) options_.log.warning(remark);
  start(number, std::move(manifest), std::move(staged), false);
  const std::lock_guard lock(mutex_);
  times_.stalled = Clock::now() - begun;
}

void Writer::amend(std::int64_t step, SaveReason reason, std::int64_t failures) {
  const auto number = num_saves_++;
  settle();
  if (const auto busy_with = step_being_written()) return skip(number, step, *busy_with);
  start(number, {.step = step, .failures = failures, .reason = reason}, {}, true);
}

// A writer that waits for rank 0 ends within one kTellingTime after the deadline, with the cause.
// Only a writer that its own file system blocks is still busy after two.
void Writer::settle() {
  std::unique_lock lock(mutex_);
  if (!job_) return;
  const auto patience = job_->save.deadline.at() + 2 * kTellingTime;
  if (changed_.wait_until(lock, patience, [&] { return !job_; }) || job_->given_up) return;
  job_->given_up = true;
  const auto why = fmt::format(
      "rank {} still writes the checkpoint of step {} to {} after the timeout of {} s: its disk is "
      "slow or stuck; if it is only slow, raise RunOptions::timeout",
      world_.rank(), job_->manifest.step, folder_, options_.timeout.count());
  if (!failure_) failure_ = std::make_exception_ptr(SystemError(why, ETIME));
  options_.log.error(why);
}

std::optional<std::int64_t> Writer::step_being_written() const {
  const std::lock_guard lock(mutex_);
  return job_ ? std::optional(job_->manifest.step) : std::nullopt;
}

void Writer::start(std::int64_t number, Manifest manifest, std::vector<FileToWrite> files,
                   bool amends) {
  const std::lock_guard lock(mutex_);
  const SaveWait save{number, manifest.step, Deadline::after(options_.timeout), options_.timeout};
  job_ = Job{save, std::move(manifest), std::move(files), Clock::now(), amends};
  changed_.notify_all();
}

// The previous save still uses the staging memory. Reports it to the other ranks, which would
// otherwise wait for this rank's file.
void Writer::skip(std::int64_t number, std::int64_t step, std::int64_t busy_with) {
  const auto why = fmt::format(
      "the checkpoint of step {} is skipped: rank {} still writes the "
      "checkpoint of step {} to {}",
      step, world_.rank(), busy_with, folder_);
  options_.log.error(why);
  tell_failure(number, why);
  const std::lock_guard lock(mutex_);
  if (world_.rank() == 0) abandoned_.push_back(temporary_of(number, step));
  if (!failure_) failure_ = std::make_exception_ptr(SystemError(why, ETIME));
}

void Writer::tell_failure(std::int64_t number, const std::string& why) {
  try {
    if (world_.rank() == 0) {
      reports_.conclude(number, why);
    } else {
      reports_.report_failure(number, why);
    }
  } catch (const std::exception& error) {  // must not replace the original error
    options_.log.warning(
        fmt::format("cannot report to the other ranks that {}: {}", why, error.what()));
  }
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
  LOCKSTEP_ASSERT(!step_being_written(), "start_from() is called before the first save");
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

}  // namespace lockstep
