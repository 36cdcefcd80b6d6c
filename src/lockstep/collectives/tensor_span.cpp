#include <fmt/format.h>

#include <sstream>
#include <string>

#include "lockstep/base/error.h"
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
          "the {} has dtype {}, which collectives do not move; convert it to float32, float64, "
          "float16, bfloat16, int8, int32, int64, uint8 or bool",
          what, toString(tensor.scalar_type())));
  }
}

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

TensorSpan span_of(const at::Tensor& tensor, std::string_view what) {
  if (!tensor.defined()) throw UsageError(fmt::format("the {} is an undefined tensor", what));
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
    throw UsageError(fmt::format(
        "the {} is a {} tensor on {}; this version moves dense tensors of the CPU: copy it there",
        what, tensor.layout() == at::kStrided ? "dense" : "sparse", tensor.device().str()));
  }
  if (!tensor.is_contiguous()) {
    throw UsageError(fmt::format("the {} of shape {} is not contiguous; call contiguous() on it",
                                 what, shape_of(tensor)));
  }
  const auto dtype = dtype_of(tensor, what);
  return {dtype, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}};
}

void note_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace lockstep
