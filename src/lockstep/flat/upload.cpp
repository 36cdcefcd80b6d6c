#include "lockstep/flat/upload.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/flat/device_stream.h"

namespace lockstep {

at::Tensor upload(std::span<const std::byte> bytes, at::Device device, std::string_view what) {
  if (is_capturing(current_stream(device))) {
    throw UsageError(
        fmt::format("{} changed while a CUDA graph was captured: every step of a captured loop "
                    "must use the same parameters, from the first step of the warm-up on",
                    what));
  }
  const auto count = static_cast<std::int64_t>(bytes.size());
  const auto pinned = at::empty({count}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  std::memcpy(pinned.mutable_data_ptr(), bytes.data(), bytes.size());
  return pinned.to(device, /*non_blocking=*/true);
}

}  // namespace lockstep
