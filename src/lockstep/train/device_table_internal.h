// What the steps of one segment on a GPU need in device memory: the constants of each parameter's
// step, and a table of chunks with which one launch steps the whole segment. Both stay from step to
// step, as long as the same parameters have gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/flat/layout.h"
#include "lockstep/flat/ownership.h"
#include "lockstep/kernels/device_passes.h"

namespace lockstep {

class DeviceTable {
 public:
  /// `slots` and `groups` have one element per parameter of the segment, in the order of slots.
  /// `runs` are the elements that this rank updates.
  DeviceTable(std::vector<Slot> slots, std::span<const DeviceGroup> groups,
              std::span<const OwnedRun> runs, at::Device device);

  /// Sets which parameters make the next step, by their index in the segment, ascending.
  void use(const std::vector<std::uint32_t>& present);

  /// For launch_steps(). `counts` is an int64 tensor on the device.
  template <typename Step>
  [[nodiscard]] DeviceParameters<Step> parameters(const at::Tensor& counts) const {
    static_assert(sizeof(Step) <= kStepBytes);
    return {.present = static_cast<const std::uint32_t*>(present_table_.const_data_ptr()),
            .num_present = present_.size(),
            .groups = static_cast<const DeviceGroup*>(groups_.const_data_ptr()),
            .counts = counts.mutable_data_ptr<std::int64_t>(),
            .steps = static_cast<Step*>(steps_.mutable_data_ptr())};
  }
  /// The chunks of this rank's elements of all parameters that make the step. The group of a chunk
  /// is the index of its parameter in the segment.
  [[nodiscard]] DeviceChunks chunks() const noexcept;

 private:
  static constexpr std::size_t kStepBytes = 64;

  std::vector<Slot> slots_;
  std::vector<OwnedRun> runs_;
  at::Device device_;
  at::Tensor groups_, steps_;
  std::vector<std::uint32_t> present_;
  at::Tensor present_table_, chunk_table_;
  std::size_t num_chunks_ = 0;
};

}  // namespace lockstep
