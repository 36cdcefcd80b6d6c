// In place of cuda_graph_step.cpp where lockstep is built without CUDA.
#include "lockstep/base/error.h"
#include "lockstep/train/cuda_graph_step.h"

namespace lockstep {

struct CudaGraphStep::State {};

CudaGraphStep::CudaGraphStep(Function /*function*/, const CudaGraphStepOptions& /*options*/) {
  throw UsageError(
      "CudaGraphStep: this build of lockstep has no CUDA: install the CUDA 13 toolkit, put nvcc on "
      "PATH, run `tools/bootstrap gpu` and configure again");
}
CudaGraphStep::~CudaGraphStep() = default;

at::Tensor CudaGraphStep::operator()(const std::vector<at::Tensor>& /*batch*/) { return {}; }
bool CudaGraphStep::is_captured() const noexcept { return false; }

}  // namespace lockstep
