// Worker threads that read batches ahead of the one who asks for them, and hand them over in the
// order they were ordered. What bounds the memory is the number of buffers, which the caller counts.
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

namespace lockstep {

class ReadAhead {
 public:
  /// Starts a thread for each reader. They live as long as this does: the end waits for the reads
  /// that are under way, and leaves the others.
  explicit ReadAhead(std::vector<BatchReader> readers);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  /// The next job in line.
  void request(ReadJob job);
  /// The result of the oldest job, once it is there. Throws SystemError at the deadline.
  [[nodiscard]] ReadResult take(Deadline deadline);
  /// Forgets all jobs; returns when none is under way any more.
  void forget();
  /// Jobs done and not taken.
  [[nodiscard]] int num_ready() const;

 private:
  enum class Stage { waiting, running, done };
  struct Entry {
    ReadJob job;
    ReadResult result{};
    Stage stage = Stage::waiting;
  };

  void work(const std::stop_token& stop, BatchReader& reader);

  std::vector<BatchReader> readers_;
  mutable std::mutex mutex_;
  std::condition_variable_any requested_;
  std::condition_variable_any done_;
  std::deque<Entry> entries_;  // mutex_; in order; a worker keeps a reference to its running one
  std::size_t started_ = 0;    // mutex_; entries before this one have a worker
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep
