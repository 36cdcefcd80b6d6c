#include "lockstep/flat/device_walk.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <vector>

#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/with_elements_internal.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

at::TensorOptions on(at::Device device, at::ScalarType dtype) {
  return at::TensorOptions().dtype(dtype).device(device);
}

std::uint32_t num_blocks(const at::Tensor& values) {
  return with_elements(values, []<typename T>(std::span<T> elements) {
    return static_cast<std::uint32_t>((elements.size() + kSquaresBlock - 1) / kSquaresBlock);
  });
}

at::Tensor norm_of(std::span<const at::Tensor> ranges, at::Device device, double max_norm) {
  const at::NoGradGuard off;
  const c10::DeviceGuard guard(device);
  const auto stream = current_stream(device);
  std::vector<std::uint32_t> ends;
  for (const auto& range : ranges) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + num_blocks(range));
  }
  const auto sums = at::empty({ends.empty() ? 0 : ends.back()}, on(device, at::kDouble));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    auto* const first = sums.mutable_data_ptr<double>() + (i == 0 ? 0 : ends[i - 1]);
    with_elements(ranges[i], [&]<typename T>(std::span<T> elements) {
      launch_squares<T>(elements.data(), elements.size(), first, stream);
    });
  }
  constexpr auto kDoubles = static_cast<std::int64_t>(sizeof(DeviceNorm) / sizeof(double));
  const auto result = at::empty({kDoubles}, on(device, at::kDouble));
  launch_norm(sums.const_data_ptr<double>(), ends, max_norm,
              static_cast<DeviceNorm*>(result.mutable_data_ptr()), stream);
  return result;
}

}  // namespace

bool are_on_one_device(const FlatParameters& flat, std::span<const FlatRange> ranges) {
  if (ranges.empty()) return false;
  const auto device = flat.gradients(ranges.front().segment).device();
  return device.is_cuda() && std::all_of(ranges.begin(), ranges.end(), [&](const auto& range) {
           return flat.gradients(range.segment).device() == device;
         });
}

at::Tensor norm_on_device(const FlatParameters& flat, std::span<const FlatRange> ranges,
                          double max_norm) {
  std::vector<at::Tensor> tensors;
  for (const auto& range : ranges) {
    tensors.push_back(flat.gradients(range.segment).slice(0, range.begin, range.end));
  }
  return norm_of(tensors, tensors.front().device(), max_norm);
}

void clip_on_device(const FlatParameters& flat, std::span<const FlatRange> ranges,
                    const at::Tensor& norm) {
  const c10::DeviceGuard guard(norm.device());
  for (const auto& range : ranges) {
    const auto& slots = flat.slot_table(range.segment);
    const DeviceSlots table{static_cast<const DeviceSlot*>(slots.const_data_ptr()),
                            static_cast<std::size_t>(slots.size(0))};
    const auto& segment = flat.gradients(range.segment);
    // A complex number is a pair.
    const std::size_t parts = segment.is_complex() ? 2 : 1;
    with_elements(segment, [&]<typename T>(std::span<T> elements) {
      launch_clip<T>(elements.data(), static_cast<std::size_t>(range.begin) * parts,
                     static_cast<std::size_t>(range.end) * parts, table,
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
  return norm_of({&values, 1}, values.device(), 0).select(0, 0);
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
