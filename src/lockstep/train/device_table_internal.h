// The table of chunks with which one launch makes the step of a whole segment on a GPU. It stays in
// device memory from step to step, as long as the same parameters have gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/kernels/device_passes.h"

namespace lockstep {

/// Elements [begin, end) of a segment, and the index of the constants of their step.
struct GroupedRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t group = 0;

  friend bool operator==(const GroupedRange&, const GroupedRange&) = default;
};

/// Copies `bytes` to `device` on its current stream, without waiting for the device.
[[nodiscard]] at::Tensor upload(std::span<const std::byte> bytes, at::Device device);

class DeviceTable {
 public:
  /// The chunks of `ranges`, in device memory. They are valid until the next call.
  [[nodiscard]] DeviceChunks chunks_of(std::span<const GroupedRange> ranges, at::Device device);

 private:
  std::vector<GroupedRange> ranges_;
  at::Tensor table_;
  std::size_t size_ = 0;
};

}  // namespace lockstep
