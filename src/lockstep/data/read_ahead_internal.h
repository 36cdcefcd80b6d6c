// Worker threads that read requested batches in the background and return them in the order of the
// requests. The caller bounds the memory by the number of batch buffers.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/data/batch_reader_internal.h"
#include "lockstep/trace/trace.h"

namespace lockstep {

class ReadAhead {
 public:
  /// Starts one thread per reader. The destructor waits for the reads in progress and discards the
  /// other requests.
  explicit ReadAhead(std::vector<BatchReader> readers, Trace* trace = nullptr);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  /// Appends a job. Returns immediately.
  void request(ReadJob job);
  /// Returns the result of the oldest job when it has been read. Throws SystemError at the
  /// deadline.
  [[nodiscard]] ReadResult take(Deadline deadline);
  /// Discards all jobs. Returns when none is in progress any more.
  void forget();
  /// The number of jobs that are done and not taken.
  [[nodiscard]] int num_ready() const;

 private:
  enum class Stage { waiting, running, done };
  struct Entry {
    ReadJob job;
    ReadResult result{};
    Stage stage = Stage::waiting;
  };

  void work(const std::stop_token& stop, int worker);

  std::vector<BatchReader> readers_;  // by worker
  Trace* const trace_;                // receives the reads; may be null
  mutable std::mutex mutex_;
  std::condition_variable_any requested_;
  std::condition_variable_any done_;
  std::deque<Entry> entries_;  // mutex_; in order; a worker keeps a reference to its running one
  std::size_t started_ = 0;    // mutex_; entries before this one have a worker
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep
