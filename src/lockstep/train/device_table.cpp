#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "lockstep/flat/upload.h"
#include "lockstep/train/device_table_internal.h"

namespace lockstep {

DeviceTable::DeviceTable(std::vector<Slot> slots, std::span<const DeviceGroup> groups,
                         std::span<const OwnedRun> runs, at::Device device)
    : slots_(std::move(slots)),
      runs_(runs.begin(), runs.end()),
      device_(device),
      groups_(upload(std::as_bytes(groups), device, "the groups of an optimizer")),
      steps_(at::zeros({static_cast<std::int64_t>(slots_.size() * kStepBytes)},
                       at::dtype(at::kByte).device(device))) {}

void DeviceTable::use(const std::vector<std::uint32_t>& present) {
  if (present == present_) return;
  std::vector<DeviceChunk> chunks;
  for (const auto index : present) {
    const auto& slot = slots_[index];
    for (const auto& run : runs_) {
      const auto end = std::min(run.end(), slot.begin + slot.count);
      for (auto at = std::max(run.begin, slot.begin); at < end; at += kDeviceChunk) {
        chunks.push_back(
            {.begin = static_cast<std::uint64_t>(at),
             .packed_begin = static_cast<std::uint64_t>(run.packed(at)),
             .count = static_cast<std::uint32_t>(std::min<std::int64_t>(kDeviceChunk, end - at)),
             .group = index});
      }
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
