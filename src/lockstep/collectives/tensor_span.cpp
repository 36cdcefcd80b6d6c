#include <ATen/Context.h>
#include <fmt/format.h>

#include <optional>
#include <sstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/collectives/device_alone_internal.h"
#include "lockstep/collectives/tensor_span_internal.h"

namespace lockstep {
namespace {

DType dtype_of(const at::Tensor& tensor, std::string_view what) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::float32;
    case at::kDouble:
      return DType::float64;
    case at::kHalf:
      return DType::float16;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kChar:
      return DType::int8;
    case at::kInt:
      return DType::int32;
    case at::kLong:
      return DType::int64;
    case at::kByte:
      return DType::uint8;
    case at::kBool:
      return DType::boolean;
    default:
      throw UsageError(fmt::format(
          "the {} has dtype {}, which collectives do not support; convert it to float32, float64, "
          "float16, bfloat16, int8, int32, int64, uint8 or bool",
          what, toString(tensor.scalar_type())));
  }
}

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

std::optional<std::string> refusal_of(const Group& group, at::Device device, const Device& where) {
  if (device.is_cpu()) return group.refusal_of(where);
  if (!device.is_cuda()) return "groups support CPU and CUDA only";
  if (!at::hasCUDA()) return "this process has no GPU";
  if (where.index >= static_cast<int>(at::getNumGPUs())) {
    return fmt::format("this process has {} GPUs", at::getNumGPUs());
  }
  return runs_alone(group) ? std::nullopt : group.refusal_of(where);
}

}  // namespace

Device usable_device(const Group& group, at::Device device, std::string_view what) {
  const Device where{device.is_cpu() ? DeviceKind::cpu : DeviceKind::cuda,
                     device.has_index() ? device.index() : 0};
  const auto refusal = refusal_of(group, device, where);
  if (!refusal) return where;
  throw UsageError(fmt::format("the {} is on {}, which backend {} does not support: {}", what,
                               device.str(), group.kind(), *refusal));
}

TensorSpan span_of(const Group& group, const at::Tensor& tensor, std::string_view what) {
  if (!tensor.defined()) throw UsageError(fmt::format("the {} is an undefined tensor", what));
  if (tensor.layout() != at::kStrided) {
    throw UsageError(fmt::format(
        "the {} is a sparse tensor on {}; collectives support dense tensors: call to_dense() on it",
        what, tensor.device().str()));
  }
  const auto device = usable_device(group, tensor.device(), what);
  if (!tensor.is_contiguous()) {
    throw UsageError(fmt::format("the {} of shape {} is not contiguous; call contiguous() on it",
                                 what, shape_of(tensor)));
  }
  const auto dtype = dtype_of(tensor, what);
  return {dtype, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}, device};
}

void note_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace lockstep
