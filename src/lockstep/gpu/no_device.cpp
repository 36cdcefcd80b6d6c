// In place of cuda_functions.cpp where lockstep is built without CUDA.
#include "lockstep/base/error.h"
#include "lockstep/gpu/device_functions.h"

namespace lockstep {

std::shared_ptr<DeviceFunctions> cuda_functions() {
  throw UsageError(
      "this build of lockstep has no CUDA: install the CUDA 13 toolkit, put nvcc on PATH, run "
      "`tools/bootstrap gpu` and configure again");
}

}  // namespace lockstep
