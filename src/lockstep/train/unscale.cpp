#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <bit>
#include <limits>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/train/bfloat16_internal.h"
#include "lockstep/train/unscale_internal.h"

namespace lockstep {
namespace {

// A number is finite unless all bits of its exponent are set: an integer test, which vectorises and
// which no compiler option can reason away.
template <typename Bits>
constexpr Bits exponent_bits() {
  if constexpr (sizeof(Bits) == 2) return 0x7F80;  // bfloat16
  if constexpr (sizeof(Bits) == 4) return 0x7F800000;
  if constexpr (sizeof(Bits) == 8) return 0x7FF0000000000000;
}

template <typename T>
bool unscale(std::span<T> values, float factor) noexcept {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
  constexpr auto mask = exponent_bits<Bits>();
  Bits found = 0;
  for (auto& value : values) {
    const auto bits = std::bit_cast<Bits>(value);
    found = static_cast<Bits>(found | static_cast<Bits>((bits & mask) == mask));
    if constexpr (sizeof(T) == 2) {
      value = at::BFloat16(narrowed(widened(bits) * factor), at::BFloat16::from_bits());
    } else {
      value *= static_cast<T>(factor);
    }
  }
  return found == 0;
}

template <typename T>
std::span<T> span_of(at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

bool unscale_by_operators(at::Tensor& values, float factor) {
  auto found = at::zeros({1}, values.options().dtype(at::kFloat));
  const auto inverse = at::full({1}, factor, values.options().dtype(at::kFloat));
  const std::vector<at::Tensor> list{values};
  at::_amp_foreach_non_finite_check_and_unscale_(list, found, inverse);
  return found.item<float>() == 0;
}

}  // namespace

bool unscale_span(std::span<float> values, float factor) noexcept {
  return unscale(values, factor);
}
bool unscale_span(std::span<double> values, float factor) noexcept {
  return unscale(values, factor);
}
bool unscale_span(std::span<at::BFloat16> values, float factor) noexcept {
  return unscale(values, factor);
}

bool unscale_tensor(at::Tensor& values, float factor) {
  if (values.is_sparse()) {
    values = values.coalesce();
    auto inner = values._values();
    return unscale_tensor(inner, factor);
  }
  const auto dtype = values.scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16) {
    throw UsageError(
        fmt::format("gradients of {} cannot be unscaled: what they lost to their range does not "
                    "come back; keep "
                    "parameters in float32 and let Autocast choose where 16 bits are used",
                    c10::toString(dtype)));
  }
  if (!values.is_cpu() || !values.is_non_overlapping_and_dense()) {
    return unscale_by_operators(values, factor);
  }
  if (dtype == at::kFloat) return unscale_span(span_of<float>(values), factor);
  if (dtype == at::kDouble) return unscale_span(span_of<double>(values), factor);
  return unscale_span(span_of<at::BFloat16>(values), factor);
}

}  // namespace lockstep
