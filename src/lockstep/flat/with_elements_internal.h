// The elements of a tensor as a span of their type.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/half.h"

namespace lockstep {

template <typename T>
std::span<T> elements_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), tensor.nbytes() / sizeof(T)};
}

// Calls `walk` with the elements of `tensor` as a span of their type.
template <typename Walk>
auto with_elements(const at::Tensor& tensor, Walk walk) {
  switch (c10::toRealValueType(tensor.scalar_type())) {
    case at::kFloat:
      return walk(elements_of<float>(tensor));
    case at::kDouble:
      return walk(elements_of<double>(tensor));
    case at::kHalf:
      return walk(elements_of<Float16>(tensor));
    case at::kBFloat16:
      return walk(elements_of<BFloat16>(tensor));
    default:
      throw UsageError(fmt::format("flat buffers hold floating-point numbers; {} is unsupported",
                                   c10::toString(tensor.scalar_type())));
  }
}

}  // namespace lockstep
