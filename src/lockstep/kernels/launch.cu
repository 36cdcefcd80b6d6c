#include <string>

#include "lockstep/base/error.h"
#include "lockstep/kernels/launch_internal.h"

namespace lockstep {

void expect_launched(const char* pass) {
  const auto error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw SystemError(std::string("the GPU refused ") + pass + ": " + cudaGetErrorString(error));
}

bool is_capturing(DeviceStream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(cuda_stream(stream), &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

}  // namespace lockstep
