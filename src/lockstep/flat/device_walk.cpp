#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <numeric>
#include <span>

#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/device_walk_internal.h"
#include "lockstep/flat/with_elements_internal.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {

bool has_non_finite_on_device(const at::Tensor& flat) {
  const at::NoGradGuard off;
  return !at::isfinite(flat).all().item<bool>();
}

// The host adds the sums of the blocks in the order of squared_norm().
double squared_norm_on_device(const at::Tensor& flat) {
  const c10::DeviceGuard guard(flat.device());
  return with_elements(flat, [&]<typename T>(std::span<T> elements) {
    const auto blocks = (elements.size() + kSquaresBlock - 1) / kSquaresBlock;
    const auto sums = at::empty({static_cast<std::int64_t>(blocks)},
                                at::TensorOptions().dtype(at::kDouble).device(flat.device()));
    launch_squares<T>(elements.data(), elements.size(), sums.mutable_data_ptr<double>(),
                      current_stream(flat.device()));
    const auto on_host = sums.cpu();
    const std::span all(on_host.const_data_ptr<double>(), blocks);
    return std::accumulate(all.begin(), all.end(), 0.0);
  });
}

std::uint64_t digest_on_device(const at::Tensor& flat) {
  const c10::DeviceGuard guard(flat.device());
  const auto sum = at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(flat.device()));
  launch_digest(static_cast<const std::byte*>(flat.const_data_ptr()), flat.nbytes(), 0,
                static_cast<std::uint64_t*>(sum.mutable_data_ptr()), current_stream(flat.device()));
  return static_cast<std::uint64_t>(sum.item<std::int64_t>());
}

}  // namespace lockstep
