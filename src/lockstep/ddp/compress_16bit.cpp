#include "lockstep/ddp/compress_16bit.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <utility>

#include "lockstep/flat/parallel.h"
#include "lockstep/flat/walk.h"
#include "lockstep/kernels/convert_pass.h"

namespace lockstep {
namespace {

constexpr std::size_t kUnit = 32;  // elements: a cache line of 16-bit values

template <typename T>
std::span<T> elements_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

bool uses_loops(const at::Tensor& values) {
  return values.is_cpu() && values.scalar_type() == at::kFloat;
}

template <typename Stored>
void narrow(const at::Tensor& values, const at::Tensor& wire) {
  if (!uses_loops(values)) {
    wire.copy_(values, /*non_blocking=*/true);
    return;
  }
  const std::span<const float> from = elements_of<float>(values);
  const auto to = elements_of<Stored>(wire);
  in_parts(to.size(), kUnit, [&](std::size_t begin, std::size_t end) {
    narrow_pass<Stored>(from.subspan(begin, end - begin), to.subspan(begin, end - begin));
  });
}

template <typename Stored>
void widen(const at::Tensor& wire, const at::Tensor& values) {
  if (!uses_loops(values)) {
    values.copy_(wire, /*non_blocking=*/true);
    return;
  }
  const std::span<const Stored> from = elements_of<Stored>(wire);
  const auto to = elements_of<float>(values);
  in_parts(to.size(), kUnit, [&](std::size_t begin, std::size_t end) {
    widen_pass<Stored>(from.subspan(begin, end - begin), to.subspan(begin, end - begin));
  });
}

bool has_16_bits(const at::Tensor& values) {
  return values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16;
}

template <typename Stored>
HookTask reduce_16bit(GradientBucket& bucket, const GradientHook& inner, at::ScalarType dtype) {
  if (has_16_bits(bucket.values())) {
    co_await inner(bucket);
    co_return;
  }
  auto wire = bucket.scratch("wire", bucket.values().numel(), dtype);
  bucket.encode([&] {
    narrow<Stored>(bucket.values(), wire);
    // A GPU is not waited for; Ddp::non_finite() searches the averages there.
    const bool may_overflow = dtype == at::kHalf && wire.is_cpu();
    if (may_overflow && has_non_finite(wire)) bucket.report_non_finite();
  });
  auto narrowed = bucket.with_values(wire);
  co_await inner(narrowed);
  bucket.decode([&] { widen<Stored>(wire, bucket.values()); });
}

template <typename Stored>
GradientHook compress(GradientHook inner, at::ScalarType dtype, std::string name) {
  if (inner.name() != all_reduce_hook().name()) name += " around " + inner.name();
  return {[inner = std::move(inner), dtype](GradientBucket& bucket) {
            return reduce_16bit<Stored>(bucket, inner, dtype);
          },
          std::move(name)};
}

}  // namespace

GradientHook compress_bf16() { return compress_bf16(all_reduce_hook()); }
GradientHook compress_bf16(GradientHook inner) {
  return compress<BFloat16>(std::move(inner), at::kBFloat16, "bf16");
}

GradientHook compress_fp16() { return compress_fp16(all_reduce_hook()); }
GradientHook compress_fp16(GradientHook inner) {
  return compress<Float16>(std::move(inner), at::kHalf, "fp16");
}

}  // namespace lockstep
