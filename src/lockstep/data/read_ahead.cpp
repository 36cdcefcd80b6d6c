#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/error.h"
#include "lockstep/data/read_ahead_internal.h"
#include "lockstep/trace/span.h"

namespace lockstep {

ReadAhead::ReadAhead(std::vector<BatchReader> readers, Trace* trace)
    : readers_(std::move(readers)), trace_(trace) {
  for (int worker = 0; worker < static_cast<int>(readers_.size()); ++worker) {
    threads_.emplace_back([this, worker](const std::stop_token& stop) { work(stop, worker); });
  }
}

ReadAhead::~ReadAhead() {
  for (auto& thread : threads_) thread.request_stop();  // all, before the first is joined
}

void ReadAhead::request(ReadJob job) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back({.job = std::move(job)});
  }
  requested_.notify_one();
}

ReadResult ReadAhead::take(Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto& first = entries_.front();
  if (!done_.wait_until(lock, deadline.at(), [&] { return first.stage == Stage::done; })) {
    throw SystemError(
        fmt::format("no worker has read the batch that begins with sample {} in time; check the "
                    "disk or network of the data, or raise LoaderOptions::limit",
                    first.job.samples.empty() ? -1 : first.job.samples.front()),
        ETIMEDOUT);
  }
  auto result = std::move(first.result);
  entries_.pop_front();
  --started_;
  return result;
}

void ReadAhead::forget() {
  std::unique_lock lock(mutex_);
  entries_.resize(started_);
  done_.wait(lock, [&] {
    return std::all_of(entries_.begin(), entries_.end(),
                       [](const Entry& entry) { return entry.stage == Stage::done; });
  });
  entries_.clear();
  started_ = 0;
}

int ReadAhead::num_ready() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.stage == Stage::done;
  }));
}

void ReadAhead::work(const std::stop_token& stop, int worker) {
  auto& reader = readers_[static_cast<std::size_t>(worker)];
  const AlternateSignalStack signal_stack;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool some = requested_.wait(lock, stop, [&] { return started_ < entries_.size(); });
    if (!some || stop.stop_requested()) return;
    // Insertions and removals at both ends of a deque leave references to other elements valid.
    auto& entry = entries_[started_++];
    entry.stage = Stage::running;
    auto job = std::move(entry.job);
    lock.unlock();
    auto result = [&] {
      const Span span(trace_,
                      {.index = worker, .kind = EventKind::data_read, .lane = Lane::loader});
      return reader.read(std::move(job));
    }();
    lock.lock();
    entry.result = std::move(result);
    entry.stage = Stage::done;
    done_.notify_one();
  }
}

}  // namespace lockstep
