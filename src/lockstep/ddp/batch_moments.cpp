#include "lockstep/ddp/batch_moments.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

bool is_16_bit(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

// A vector by channel, as an operand of tensors with `dims` dimensions.
at::Tensor along_channels(const at::Tensor& by_channel, std::int64_t dims) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(dims), 1);
  sizes[1] = by_channel.numel();
  return by_channel.view(sizes);
}

// (values − offset) ÷ √(variance + eps) × scale + shift, in one pass of LibTorch.
at::Tensor affine(const at::Tensor& values, const Normalization& by, const at::Tensor& scale,
                  const at::Tensor& shift) {
  return std::get<0>(at::native_batch_norm(values, scale, shift, by.offset, by.variance,
                                           /*training=*/false, /*momentum=*/0, by.eps));
}

at::Tensor in_dtype_of(const at::Tensor& values, const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(values.scalar_type()) : tensor;
}

struct Moments {
  at::Tensor count;
  at::Tensor mean;
  at::Tensor squares;
};

Moments moments_in(const at::Tensor& row) {
  const auto channels = (row.numel() - 1) / 2;
  return {row.narrow(0, 0, 1), row.narrow(0, 1, channels), row.narrow(0, 1 + channels, channels)};
}

// Chan, Golub and LeVeque, 1979: exact for any n of the two, also 0.
Moments merged(const Moments& a, const Moments& b) {
  const auto count = a.count + b.count;
  const auto fraction = b.count / count.clamp_min(1);
  const auto distance = b.mean - a.mean;
  return {count, a.mean + distance * fraction,
          a.squares + b.squares + distance.square() * (a.count * fraction)};
}

// Rows [begin, end): the left subtree has the largest power of two below their number.
Moments merged(const at::Tensor& rows, std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) return moments_in(rows.select(0, begin));
  std::int64_t left = 1;
  while (left * 2 < end - begin) left *= 2;
  return merged(merged(rows, begin, begin + left), merged(rows, begin + left, end));
}

}  // namespace

ShiftedInput shifted(const at::Tensor& x) {
  const auto channels = x.size(1);
  const auto dtype = is_16_bit(x.scalar_type()) ? at::kFloat : x.scalar_type();
  if (x.numel() == 0) {
    return {.values = x.to(dtype),
            .shift = at::zeros({channels}, x.options().dtype(at::kDouble)),
            .count = 0};
  }
  const auto dense = x.contiguous(x.suggest_memory_format());
  auto shift = dense.select(0, 0);
  while (shift.dim() > 1) shift = shift.select(-1, 0);
  shift = shift.to(dtype);
  return {.values = at::sub(dense, along_channels(shift, dense.dim())),  // in the wider dtype
          .shift = shift.to(at::kDouble),
          .count = x.numel() / channels};
}

at::Tensor moments_of(const ShiftedInput& input) {
  if (input.count == 0) return no_moments(input.shift.numel(), input.shift.device());
  const auto n = static_cast<double>(input.count);
  const auto [mean, variance] = at::batch_norm_update_stats(input.values, {}, {}, 0);
  return at::cat({at::full({1}, n, input.shift.options()), input.shift + mean.to(at::kDouble),
                  variance.to(at::kDouble) * n});
}

at::Tensor no_moments(std::int64_t channels, at::Device device) {
  return at::zeros({2 * channels + 1}, at::dtype(at::kDouble).device(device));
}

BatchStatistics merged(const at::Tensor& moments) {
  const auto all = merged(moments, 0, moments.size(0));
  return {all.mean, all.squares / all.count.clamp_min(1)};
}

Normalization normalization_of(const BatchStatistics& statistics, const at::Tensor& shift,
                               double eps, at::ScalarType dtype) {
  return {.offset = (statistics.mean - shift).to(dtype),
          .variance = statistics.variance.to(dtype),
          .inverse_deviation = (statistics.variance + eps).rsqrt().to(dtype),
          .eps = eps};
}

at::Tensor normalized(const at::Tensor& values, const Normalization& by, const at::Tensor& weight,
                      const at::Tensor& bias) {
  if (values.numel() == 0) return at::empty_like(values);
  return affine(values, by, in_dtype_of(values, weight), in_dtype_of(values, bias));
}

at::Tensor gradient_sums(const at::Tensor& gradient, const at::Tensor& values,
                         const Normalization& by) {
  if (values.numel() == 0) {
    return at::zeros({2, by.offset.numel()}, by.offset.options().dtype(at::kDouble));
  }
  // LibTorch's loops for CUDA need the saved statistics without training too, and take the dtype of
  // these gradients from the weight, whose values do not matter.
  const auto [input, weight, bias] = at::native_batch_norm_backward(
      gradient, values, at::ones_like(by.offset), by.offset, by.variance, by.offset,
      by.inverse_deviation, /*train=*/false, by.eps, {false, true, true});
  return at::stack({bias, weight}).to(at::kDouble);
}

at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& values,
                          const Normalization& by, const at::Tensor& weight, const at::Tensor& sums,
                          std::int64_t count) {
  if (values.numel() == 0) return at::empty_like(values);
  const auto means = sums / static_cast<double>(count);
  auto scale = by.inverse_deviation.to(at::kDouble);
  if (weight.defined()) scale = scale * weight.to(at::kDouble);
  const auto dtype = values.scalar_type();
  // scale × (gradient − means[0] − normalized × means[1]), in two passes.
  auto result = affine(values, by, (-scale * means[1]).to(dtype), (-scale * means[0]).to(dtype));
  return result.addcmul_(gradient, along_channels(scale.to(dtype), values.dim()));
}

}  // namespace lockstep
