#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "lockstep/flat/upload.h"
#include "lockstep/train/device_table_internal.h"

namespace lockstep {

DeviceTable::DeviceTable(std::vector<Slot> slots, std::span<const DeviceGroup> groups,
                         at::Device device)
    : slots_(std::move(slots)),
      device_(device),
      groups_(upload(std::as_bytes(groups), device, "the groups of an optimizer")),
      steps_(at::zeros({static_cast<std::int64_t>(slots_.size() * kStepBytes)},
                       at::dtype(at::kByte).device(device))) {}

void DeviceTable::use(const std::vector<std::uint32_t>& present) {
  if (present == present_) return;
  std::vector<DeviceChunk> chunks;
  for (const auto index : present) {
    const auto& slot = slots_[index];
    for (std::int64_t at = 0; at < slot.count; at += kDeviceChunk) {
      const auto count = std::min<std::int64_t>(kDeviceChunk, slot.count - at);
      chunks.push_back(
          {static_cast<std::uint64_t>(slot.begin + at), static_cast<std::uint32_t>(count), index});
    }
  }
  constexpr auto kWhat = "the set of parameters with a gradient";
  chunk_table_ = upload(std::as_bytes(std::span(chunks)), device_, kWhat);
  present_table_ = upload(std::as_bytes(std::span(present)), device_, kWhat);
  num_chunks_ = chunks.size();
  present_ = present;
}

DeviceChunks DeviceTable::chunks() const noexcept {
  return {static_cast<const DeviceChunk*>(chunk_table_.const_data_ptr()), num_chunks_};
}

}  // namespace lockstep
