// The memory in which batches are assembled, and their way to the training device.
//
// The loader owns a ring of batch buffers, each large enough for one batch, and calls this
// interface at four moments: before and after a worker writes a buffer, before and after the step
// reads it. Host memory needs no action there. On a GPU, end_write() starts a copy from pinned
// memory on a stream of its own, begin_read() makes the step's stream wait for it, and recycle()
// records the end of the step's use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/data/sample_layout.h"

namespace lockstep {

class BatchMemory {
 public:
  BatchMemory() = default;
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;
  virtual ~BatchMemory() = default;

  /// Allocates `num_buffers` buffers of `capacity` rows each. The loader calls it once, first.
  virtual void allocate(const SampleLayout& layout, int num_buffers, std::int64_t capacity) = 0;

  /// The memory that workers write: the first byte of each field's block. Valid until
  /// recycle(buffer).
  [[nodiscard]] virtual std::span<std::byte* const> blocks(int buffer) = 0;
  /// The tensors that the step reads: one per field, [capacity, shape...], on the step's device.
  [[nodiscard]] virtual std::span<const at::Tensor> tensors(int buffer) = 0;

  /// Called by a worker before it writes. Returns when nothing reads the blocks any more.
  virtual void begin_write(int buffer) = 0;
  /// Called by a worker after it has written `count` rows.
  virtual void end_write(int buffer, std::int64_t count) = 0;
  /// Called by the training thread before next() returns the batch. Work that this thread starts
  /// afterwards sees the complete tensors.
  virtual void begin_read(int buffer) = 0;
  /// Called by the training thread before the buffer is reused. If a tensor of the buffer is still
  /// referenced elsewhere, the buffer gets new memory, so that a kept batch is never overwritten.
  virtual void recycle(int buffer) = 0;
};

/// Pageable host memory, for ranks that train on the CPU.
[[nodiscard]] std::unique_ptr<BatchMemory> host_batch_memory();
/// Memory for batches on `device`: host memory for the CPU; for a GPU, pinned memory and copies
/// that overlap with the step. Construct it on the thread that trains. Throws UsageError when this
/// process does not see the device.
[[nodiscard]] std::unique_ptr<BatchMemory> batch_memory_on(at::Device device);

}  // namespace lockstep
