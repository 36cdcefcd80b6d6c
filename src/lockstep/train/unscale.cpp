#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/flat/device_walk.h"
#include "lockstep/flat/walk.h"
#include "lockstep/train/unscale_internal.h"

namespace lockstep {
namespace {

bool unscale_by_operators(at::Tensor& values, float factor) {
  auto found = at::zeros({1}, values.options().dtype(at::kFloat));
  const auto inverse = at::full({1}, factor, values.options().dtype(at::kFloat));
  const std::vector<at::Tensor> list{values};
  at::_amp_foreach_non_finite_check_and_unscale_(list, found, inverse);
  return found.item<float>() == 0;
}

void expect_dtype(const at::Tensor& values) {
  const auto dtype = values.scalar_type();
  if (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16) return;
  throw UsageError(fmt::format(
      "unscaling gradients of {} is unsupported: values that underflowed are lost. Keep "
      "parameters in float32 and use Autocast for 16-bit compute",
      c10::toString(dtype)));
}

}  // namespace

bool unscale_tensor(at::Tensor& values, float factor) {
  if (values.is_sparse()) {
    values = values.coalesce();
    auto inner = values._values();
    return unscale_tensor(inner, factor);
  }
  expect_dtype(values);
  if (!values.is_non_overlapping_and_dense()) return unscale_by_operators(values, factor);
  return !scale_noting_non_finite(values, factor);
}

void unscale_tensor_on_device(at::Tensor& values, const at::Tensor& scaler) {
  if (values.is_sparse()) {
    values = values.coalesce();
    auto inner = values._values();
    return unscale_tensor_on_device(inner, scaler);
  }
  expect_dtype(values);
  if (values.is_non_overlapping_and_dense()) return unscale_on_device(values, scaler);
  const auto dense = values.contiguous();
  unscale_on_device(dense, scaler);
  values.copy_(dense);
}

}  // namespace lockstep
