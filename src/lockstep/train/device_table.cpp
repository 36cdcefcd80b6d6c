#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "lockstep/train/device_table_internal.h"

namespace lockstep {

at::Tensor upload(std::span<const std::byte> bytes, at::Device device) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  const auto pinned = at::empty({count}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  std::memcpy(pinned.mutable_data_ptr(), bytes.data(), bytes.size());
  return pinned.to(device, /*non_blocking=*/true);
}

DeviceChunks DeviceTable::chunks_of(std::span<const GroupedRange> ranges, at::Device device) {
  if (!std::equal(ranges.begin(), ranges.end(), ranges_.begin(), ranges_.end())) {
    ranges_.assign(ranges.begin(), ranges.end());
    std::vector<DeviceChunk> chunks;
    for (const auto& range : ranges) {
      for (auto begin = range.begin; begin < range.end; begin += kDeviceChunk) {
        const auto count = std::min<std::int64_t>(kDeviceChunk, range.end - begin);
        chunks.push_back(
            {static_cast<std::uint64_t>(begin), static_cast<std::uint32_t>(count), range.group});
      }
    }
    table_ = upload(std::as_bytes(std::span(chunks)), device);
    size_ = chunks.size();
  }
  return {static_cast<const DeviceChunk*>(table_.const_data_ptr()), size_};
}

}  // namespace lockstep
