#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/collectives/device_alone_internal.h"

namespace lockstep {
namespace {

// As on the CPU, 16-bit types are divided in float32 and rounded once. The divisor is a tensor:
// LibTorch multiplies by the reciprocal of a plain number, which rounds differently.
void divide(const at::Tensor& tensor, std::int64_t weight) {
  const auto wide = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto divisor =
      at::full({}, static_cast<double>(weight), tensor.options().dtype(wide).requires_grad(false));
  if (tensor.scalar_type() == wide) {
    tensor.div_(divisor);
  } else {
    tensor.copy_(at::div(tensor.to(wide), divisor));
  }
}

}  // namespace

void run_alone_on_device(const Call& call, const at::Tensor& output, const at::Tensor& input) {
  const at::NoGradGuard off;
  if (!output.is_same(input)) output.view({-1}).copy_(input.view({-1}));
  const auto weight = call.weight.value_or(1);
  if (reduces(call.kind) && call.op == ReduceOp::weighted_average && weight > 1) {
    divide(output, weight);
  }
}

void synchronize_stream(at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

}  // namespace lockstep
