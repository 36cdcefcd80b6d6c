// In place of the CUDA sources where lockstep is built without CUDA.
#include "lockstep/base/error.h"
#include "lockstep/kernels/device_passes.h"
#include "lockstep/kernels/device_reduce.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw UsageError(
      "this build of lockstep has no CUDA: install the CUDA 13 toolkit, put nvcc on PATH, run "
      "`tools/bootstrap gpu` and configure again");
}

}  // namespace

template <typename Stored>
void launch_adam(const AdamStretch<Stored>&, DeviceChunks, const AdamStep*, const std::uint32_t*,
                 DeviceStream) {
  refuse();
}
template <typename Stored>
void launch_sgd(const SgdStretch<Stored>&, DeviceChunks, const SgdStep*, const std::uint32_t*,
                DeviceStream) {
  refuse();
}
void launch_steps(const AdamRule&, const DeviceParameters<AdamStep>&, const DeviceStepInputs&,
                  DeviceStream) {
  refuse();
}
void launch_steps(const SgdRule&, const DeviceParameters<SgdStep>&, const DeviceStepInputs&,
                  DeviceStream) {
  refuse();
}
template <typename Stored>
void launch_cells(const Stored*, std::size_t, std::size_t, DeviceSlots, const DeviceCells&,
                  DeviceStream) {
  refuse();
}
void launch_norm(std::span<const double>, double*, double, DeviceNorm*, DeviceStream) { refuse(); }
template <typename Stored>
void launch_clip(Stored*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*, DeviceStream) {
  refuse();
}
template <typename Stored>
void launch_find_non_finite(const Stored*, std::size_t, std::uint32_t*, DeviceStream) {
  refuse();
}
template <typename Stored>
void launch_unscale(Stored*, std::size_t, DeviceScaler*, DeviceStream) {
  refuse();
}
void launch_scaler_update(DeviceScaler*, double, double, std::int64_t, DeviceStream) { refuse(); }
template <typename Stored>
void launch_gather(std::span<const GatheredGradient>, std::uint32_t*, DeviceStream) {
  refuse();
}
void launch_digest(const std::byte*, std::size_t, std::uint64_t, std::uint64_t*, DeviceStream) {
  refuse();
}
bool is_capturing(DeviceStream) { return false; }
void launch_reduce(const Reduction&, const TreePlan&, std::span<const std::byte* const>,
                   std::span<std::byte* const>, std::size_t, DeviceStream) {
  refuse();
}

template void launch_adam(const AdamStretch<float>&, DeviceChunks, const AdamStep*,
                          const std::uint32_t*, DeviceStream);
template void launch_adam(const AdamStretch<double>&, DeviceChunks, const AdamStep*,
                          const std::uint32_t*, DeviceStream);
template void launch_adam(const AdamStretch<BFloat16>&, DeviceChunks, const AdamStep*,
                          const std::uint32_t*, DeviceStream);
template void launch_sgd(const SgdStretch<float>&, DeviceChunks, const SgdStep*,
                         const std::uint32_t*, DeviceStream);
template void launch_sgd(const SgdStretch<double>&, DeviceChunks, const SgdStep*,
                         const std::uint32_t*, DeviceStream);
template void launch_sgd(const SgdStretch<BFloat16>&, DeviceChunks, const SgdStep*,
                         const std::uint32_t*, DeviceStream);
template void launch_cells(const float*, std::size_t, std::size_t, DeviceSlots, const DeviceCells&,
                           DeviceStream);
template void launch_cells(const double*, std::size_t, std::size_t, DeviceSlots, const DeviceCells&,
                           DeviceStream);
template void launch_cells(const Float16*, std::size_t, std::size_t, DeviceSlots,
                           const DeviceCells&, DeviceStream);
template void launch_cells(const BFloat16*, std::size_t, std::size_t, DeviceSlots,
                           const DeviceCells&, DeviceStream);
template void launch_clip(float*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_clip(double*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_clip(Float16*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_clip(BFloat16*, std::size_t, std::size_t, DeviceSlots, const DeviceNorm*,
                          DeviceStream);
template void launch_find_non_finite(const float*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_find_non_finite(const double*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_find_non_finite(const Float16*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_find_non_finite(const BFloat16*, std::size_t, std::uint32_t*, DeviceStream);
template void launch_unscale(float*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_unscale(double*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_unscale(Float16*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_unscale(BFloat16*, std::size_t, DeviceScaler*, DeviceStream);
template void launch_gather<float>(std::span<const GatheredGradient>, std::uint32_t*, DeviceStream);
template void launch_gather<double>(std::span<const GatheredGradient>, std::uint32_t*,
                                    DeviceStream);
template void launch_gather<Float16>(std::span<const GatheredGradient>, std::uint32_t*,
                                     DeviceStream);
template void launch_gather<BFloat16>(std::span<const GatheredGradient>, std::uint32_t*,
                                      DeviceStream);

}  // namespace lockstep
