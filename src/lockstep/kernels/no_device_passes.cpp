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
void launch_adam(const AdamStretch<Stored>&, DeviceChunks, const AdamStep*, DeviceStream) {
  refuse();
}
template <typename Stored>
void launch_sgd(const SgdStretch<Stored>&, DeviceChunks, const SgdStep*, DeviceStream) {
  refuse();
}
template <typename Stored>
void launch_squares(const Stored*, std::size_t, double*, DeviceStream) {
  refuse();
}
void launch_digest(const std::byte*, std::size_t, std::uint64_t, std::uint64_t*, DeviceStream) {
  refuse();
}

template void launch_adam(const AdamStretch<float>&, DeviceChunks, const AdamStep*, DeviceStream);
template void launch_adam(const AdamStretch<double>&, DeviceChunks, const AdamStep*, DeviceStream);
template void launch_adam(const AdamStretch<BFloat16>&, DeviceChunks, const AdamStep*,
                          DeviceStream);
template void launch_sgd(const SgdStretch<float>&, DeviceChunks, const SgdStep*, DeviceStream);
template void launch_sgd(const SgdStretch<double>&, DeviceChunks, const SgdStep*, DeviceStream);
template void launch_sgd(const SgdStretch<BFloat16>&, DeviceChunks, const SgdStep*, DeviceStream);
template void launch_squares(const float*, std::size_t, double*, DeviceStream);
template void launch_squares(const double*, std::size_t, double*, DeviceStream);
template void launch_squares(const Float16*, std::size_t, double*, DeviceStream);
template void launch_squares(const BFloat16*, std::size_t, double*, DeviceStream);

}  // namespace lockstep
