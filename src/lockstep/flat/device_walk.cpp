#include "lockstep/flat/device_walk.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/with_elements_internal.h"
#include "lockstep/kernels/device_passes.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

at::TensorOptions on(at::Device device, at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(device);
}

DeviceSlots slots_of(const at::Tensor& table, const at::Tensor& elements) {
  return {.table = static_cast<const DeviceSlot*>(table.const_data_ptr()),
          .size = static_cast<std::size_t>(table.size(0)),
          .width = elements.is_complex() ? 2U : 1U};
}

// Cells with keys from `first_key` on (norm_grid.h) of elements that begin at element `begin` of
// their segment; `sums` has one element per key.
void launch_cells_of(const at::Tensor& elements, std::int64_t begin, DeviceSlots slots,
                     std::int64_t first_key, const at::Tensor& sums) {
  const auto stream = current_stream(elements.device());
  with_elements(elements, [&]<typename T>(std::span<T> values) {
    launch_cells<T>(values.data(), static_cast<std::size_t>(begin) * slots.width, values.size(),
                    slots,
                    {.first_key = static_cast<std::uint64_t>(first_key),
                     .sums = sums.mutable_data_ptr<double>(),
                     .size = static_cast<std::size_t>(sums.numel())},
                    stream);
  });
}

}  // namespace

bool are_on_one_device(const FlatParameters& flat, std::span<const FlatRange> ranges) {
  if (ranges.empty()) return false;
  const auto device = flat.values(ranges.front().segment).device();
  return device.is_cuda() && std::all_of(ranges.begin(), ranges.end(), [&](const auto& range) {
           return flat.values(range.segment).device() == device;
         });
}

at::Tensor cells_on_device(const FlatParameters& flat, const NormGrid& grid,
                           std::span<const GradientPiece> pieces) {
  const auto device = pieces.front().gradients.device();
  const c10::DeviceGuard guard(device);
  const auto cells = at::zeros({grid.num_cells()}, on(device, at::kDouble));
  for (const auto& piece : pieces) {
    const auto slots = slots_of(flat.slot_table(piece.segment), piece.gradients);
    for (const auto& run : grid.cell_runs(piece.segment, {piece.begin, piece.gradients.numel()})) {
      launch_cells_of(piece.gradients, piece.begin, slots, run.first_key,
                      cells.narrow(0, run.first_cell, run.count));
    }
  }
  return cells;
}

at::Tensor norm_on_device(const at::Tensor& cells, double max_norm) {
  const auto device = cells.device();
  const c10::DeviceGuard guard(device);
  const auto count = static_cast<std::size_t>(cells.numel());
  constexpr auto kDoubles = static_cast<std::int64_t>(sizeof(DeviceNorm) / sizeof(double));
  const auto runs =
      at::empty({static_cast<std::int64_t>(num_runs(count))}, on(device, at::kDouble));
  const auto result = at::empty({kDoubles}, on(device, at::kDouble));
  launch_norm({cells.const_data_ptr<double>(), count}, runs.mutable_data_ptr<double>(), max_norm,
              static_cast<DeviceNorm*>(result.mutable_data_ptr()), current_stream(device));
  return result;
}

void clip_on_device(const FlatParameters& flat, std::span<const FlatRange> ranges,
                    const at::Tensor& norm) {
  const c10::DeviceGuard guard(norm.device());
  for (const auto& range : ranges) {
    const auto gradients = flat.averages(range);
    const auto slots = slots_of(flat.slot_table(range.segment), gradients);
    with_elements(gradients, [&]<typename T>(std::span<T> elements) {
      launch_clip<T>(elements.data(), static_cast<std::size_t>(range.begin) * slots.width,
                     static_cast<std::size_t>(range.end) * slots.width, slots,
                     static_cast<const DeviceNorm*>(norm.const_data_ptr()),
                     current_stream(norm.device()));
    });
  }
}

void unscale_on_device(const at::Tensor& values, const at::Tensor& scaler) {
  const c10::DeviceGuard guard(values.device());
  with_elements(values, [&]<typename T>(std::span<T> elements) {
    launch_unscale<T>(elements.data(), elements.size(),
                      static_cast<DeviceScaler*>(scaler.mutable_data_ptr()),
                      current_stream(values.device()));
  });
}

at::Tensor non_finite_on_device(const at::Tensor& values) {
  const c10::DeviceGuard guard(values.device());
  const auto found = at::zeros({}, on(values.device(), at::kInt));
  with_elements(values, [&]<typename T>(std::span<T> elements) {
    launch_find_non_finite<T>(elements.data(), elements.size(),
                              static_cast<std::uint32_t*>(found.mutable_data_ptr()),
                              current_stream(values.device()));
  });
  return found;
}

at::Tensor squared_norm_on_device(const at::Tensor& values) {
  const c10::DeviceGuard guard(values.device());
  const auto num_cells =
      (static_cast<std::int64_t>(values.nbytes()) + kShardBlockBytes - 1) / kShardBlockBytes;
  const auto cells = at::zeros({num_cells}, on(values.device(), at::kDouble));
  if (num_cells > 0) {
    // One slot, [0, numel). Made by the device, because a copy from the host cannot be captured.
    const auto slot =
        at::arange(0, 2 * values.numel(), values.numel(), on(values.device(), at::kLong))
            .view({1, 2});
    launch_cells_of(values, 0, slots_of(slot, values), 0, cells);
  }
  return norm_on_device(cells, 0).select(0, 0);
}

at::Tensor digest_on_device(const at::Tensor& memory, std::int64_t begin, std::int64_t end) {
  const c10::DeviceGuard guard(memory.device());
  const auto sum = at::zeros({}, on(memory.device(), at::kLong));
  launch_digest(static_cast<const std::byte*>(memory.const_data_ptr()) + begin,
                static_cast<std::size_t>(end - begin), 0,
                static_cast<std::uint64_t*>(sum.mutable_data_ptr()),
                current_stream(memory.device()));
  return sum;
}

}  // namespace lockstep
