// Where batches are put together and how they reach the device that trains. The loader owns a ring
// of buffers, each with room for one batch, and tells this interface at the four moments that matter:
// before and after workers write a buffer, before and after the step reads it. Host memory has
// nothing to do there. Pinned memory with a copy stream starts its copy after the write, makes the
// step's stream wait for it before the read, and marks the end of the step's use after the read.
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

  /// Makes room for `num_buffers` batches of up to `capacity` rows. Called once, before all else.
  virtual void allocate(const SampleLayout& layout, int num_buffers, std::int64_t capacity) = 0;

  /// What workers write: the first byte of each field's block. Valid until recycle(buffer).
  [[nodiscard]] virtual std::span<std::byte* const> blocks(int buffer) = 0;
  /// What the step reads: one tensor [capacity, shape...] a field, on the step's device.
  [[nodiscard]] virtual std::span<const at::Tensor> tensors(int buffer) = 0;

  /// On the worker, before it writes: returns when nothing reads the blocks any more.
  virtual void begin_write(int buffer) = 0;
  /// On the worker, after it has written `count` rows.
  virtual void end_write(int buffer, std::int64_t count) = 0;
  /// On the training thread, before the batch is handed out: what the thread starts from here on
  /// sees the tensors full.
  virtual void begin_read(int buffer) = 0;
  /// On the training thread, when it is done with the batch. Tensors that somebody still holds stay
  /// theirs: the buffer gets new memory then, so a batch that was kept is never overwritten.
  virtual void recycle(int buffer) = 0;
};

/// Plain host memory, for ranks that train on the CPU.
[[nodiscard]] std::unique_ptr<BatchMemory> host_batch_memory();

}  // namespace lockstep
