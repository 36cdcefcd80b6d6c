#include "lockstep/kernels/exponent_internal.h"
#include "lockstep/kernels/launch_internal.h"

namespace lockstep {
namespace {

template <typename Stored>
__global__ void scale(Stored* values, std::size_t count, const double* factor) {
  if (*factor >= 1) return;
  const auto by = static_cast<WideOf<Stored>>(*factor);
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * kDeviceChunk;
  const auto length = static_cast<std::uint32_t>(min(std::size_t{kDeviceChunk}, count - begin));
  for_each_element({begin, length},
                   [&](std::size_t i) { values[i] = narrowed<Stored>(widened(values[i]) * by); });
}

template <GatherMode Mode, typename Stored>
__global__ void gather(const DeviceCopy* table, std::uint32_t* non_finite) {
  const auto entry = table[blockIdx.x];
  const auto* const from = static_cast<const Stored*>(entry.from);
  auto* const to = static_cast<Stored*>(entry.to);
  constexpr auto exponent = FloatBits<Stored>::kExponent;
  typename FloatBits<Stored>::Word notes = 0;
  for_each_element({.count = entry.count}, [&](std::size_t i) {
    auto value = from[i];
    if constexpr (Mode == GatherMode::add) {
      value = narrowed<Stored>(widened(to[i]) + widened(value));
    }
    to[i] = value;
    notes |= note_of(value);
  });
  // All that write, write 1: no atomic is needed.
  if (exponent.is_full(notes)) non_finite[entry.parameter] = 1;
}

}  // namespace

template <typename Stored>
void launch_scale(Stored* values, std::size_t count, const double* factor, DeviceStream stream) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kDeviceChunk - 1) / kDeviceChunk);
  scale<<<blocks, kThreads, 0, cuda_stream(stream)>>>(values, count, factor);
  expect_launched("scaling");
}

template <typename Stored>
void launch_gather(const DeviceCopy* table, std::size_t size, GatherMode mode,
                   std::uint32_t* non_finite, DeviceStream stream) {
  if (size == 0) return;
  const auto blocks = static_cast<unsigned>(size);
  if (mode == GatherMode::add) {
    gather<GatherMode::add, Stored>
        <<<blocks, kThreads, 0, cuda_stream(stream)>>>(table, non_finite);
  } else {
    gather<GatherMode::copy, Stored>
        <<<blocks, kThreads, 0, cuda_stream(stream)>>>(table, non_finite);
  }
  expect_launched("a copy of gradients");
}

template void launch_scale(float*, std::size_t, const double*, DeviceStream);
template void launch_scale(double*, std::size_t, const double*, DeviceStream);
template void launch_scale(Float16*, std::size_t, const double*, DeviceStream);
template void launch_scale(BFloat16*, std::size_t, const double*, DeviceStream);
template void launch_gather<float>(const DeviceCopy*, std::size_t, GatherMode, std::uint32_t*,
                                   DeviceStream);
template void launch_gather<double>(const DeviceCopy*, std::size_t, GatherMode, std::uint32_t*,
                                    DeviceStream);
template void launch_gather<Float16>(const DeviceCopy*, std::size_t, GatherMode, std::uint32_t*,
                                     DeviceStream);
template void launch_gather<BFloat16>(const DeviceCopy*, std::size_t, GatherMode, std::uint32_t*,
                                      DeviceStream);

}  // namespace lockstep
