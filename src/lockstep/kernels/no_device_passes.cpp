// In place of the CUDA sources where lockstep is built without CUDA.
#include "lockstep/base/error.h"
#include "lockstep/kernels/device_passes.h"

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
template <typename Stored>
void launch_squares(const Stored*, std::size_t, double*, DeviceStream) {
  refuse();
}
void launch_total(const double*, std::size_t, double*, DeviceStream) { refuse(); }
void launch_norm(const double*, double, DeviceNorm*, DeviceStream) { refuse(); }
template <typename Stored>
void launch_scale(Stored*, std::size_t, const double*, DeviceStream) {
  refuse();
}
template <typename Stored>
void launch_gather(const DeviceCopy*, std::size_t, GatherMode, std::uint32_t*, DeviceStream) {
  refuse();
}
void launch_digest(const std::byte*, std::size_t, std::uint64_t, std::uint64_t*, DeviceStream) {
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
template void launch_squares(const float*, std::size_t, double*, DeviceStream);
template void launch_squares(const double*, std::size_t, double*, DeviceStream);
template void launch_squares(const Float16*, std::size_t, double*, DeviceStream);
template void launch_squares(const BFloat16*, std::size_t, double*, DeviceStream);
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
