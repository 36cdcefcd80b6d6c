// Reads one batch into one batch buffer: first the data set, then the transforms. If that throws,
// the reader repeats it sample by sample to find the sample that failed. One reader per worker.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/data/batch_memory.h"
#include "lockstep/data/dataset.h"
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
  std::vector<std::int64_t> samples;  // the sample in each row of the buffer
  std::vector<BadSample> bad;
  std::exception_ptr failure;  // the memory refused, for example because the GPU has failed
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

/// The layout of the last transform's output.
[[nodiscard]] SampleLayout layout_after(const SampleLayout& layout,
                                        const std::vector<Transform>& transforms);

class BatchReader {
 public:
  /// All references are borrowed and must outlive the reader. `capacity` is the largest number of
  /// samples in a job.
  BatchReader(const Dataset& dataset, const std::vector<Transform>& transforms, std::uint64_t seed,
              const SampleLayout& batch_layout, BatchMemory& memory, std::int64_t capacity);

  /// Reads one job. Exceptions of the data set and of transforms are returned in the result, not
  /// thrown.
  [[nodiscard]] ReadResult read(ReadJob job);

 private:
  void read_into(ReadJob& job, ReadResult& result);
  /// Reads and transforms `samples` into the buffer's rows, beginning with row `first`.
  void read_some(std::int64_t epoch, std::span<const std::int64_t> samples,
                 std::span<std::byte* const> buffer, std::int64_t first);
  void read_one_by_one(const ReadJob& job, ReadResult& result);

  const Dataset& dataset_;
  const std::vector<Transform>& transforms_;
  std::uint64_t seed_;
  const SampleLayout& batch_layout_;
  BatchMemory& memory_;
  std::vector<std::unique_ptr<RowsBuffer>> inputs_;  // one per transform; null: works in place
};

}  // namespace lockstep
