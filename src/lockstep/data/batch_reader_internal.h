// Reads one batch into one buffer: the data set, then the transforms, and, where a read fails, again
// sample by sample to learn which one it was. One reader a worker.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/transform.h"

namespace lockstep {

struct ReadJob {
  int buffer = 0;
  std::int64_t epoch = 0;
  std::vector<std::int64_t> samples;
};

struct BadSample {
  std::int64_t sample = 0;
  std::exception_ptr error;  // an Error that names the sample
};

struct ReadResult {
  std::vector<std::int64_t> samples;  // those in the buffer, row by row
  std::vector<BadSample> bad;
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

/// The layout that comes out of the last transform.
[[nodiscard]] SampleLayout layout_after(const SampleLayout& layout,
                                        const std::vector<Transform>& transforms);

class BatchReader {
 public:
  /// All are borrowed and outlive the reader; `capacity` is the most samples a job has.
  BatchReader(const Dataset& dataset, const std::vector<Transform>& transforms, std::uint64_t seed,
              const SampleLayout& batch_layout, BatchMemory& memory, std::int64_t capacity);

  /// Never throws for what a data set or a transform does: that is in the result.
  [[nodiscard]] ReadResult read(ReadJob job);

 private:
  /// Reads and transforms `samples` into the rows of the buffer from `first` on.
  void read_some(std::int64_t epoch, std::span<const std::int64_t> samples,
                 std::span<std::byte* const> buffer, std::int64_t first);
  void read_one_by_one(const ReadJob& job, ReadResult& result);

  const Dataset& dataset_;
  const std::vector<Transform>& transforms_;
  std::uint64_t seed_;
  const SampleLayout& batch_layout_;
  BatchMemory& memory_;
  std::vector<std::unique_ptr<RowsBuffer>> inputs_;  // of each transform; none: works in place
};

}  // namespace lockstep
