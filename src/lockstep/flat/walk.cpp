#include "lockstep/flat/walk.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <type_traits>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/flat/noted_copy.h"

namespace lockstep {
namespace {

// The elements of each type as words (noted_copy.h).
template <typename T>
struct Bits;
template <>
struct Bits<float> {
  using Word = std::uint32_t;
  static constexpr Exponent<Word> kExponent{0x7F800000U, 0x00800000U};
};
template <>
struct Bits<double> {
  using Word = std::uint64_t;
  static constexpr Exponent<Word> kExponent{0x7FF0000000000000U, 0x0010000000000000U};
};
template <>
struct Bits<c10::Half> {
  using Word = std::uint16_t;
  static constexpr Exponent<Word> kExponent{0x7C00U, 0x0400U};
};
template <>
struct Bits<c10::BFloat16> {
  using Word = std::uint16_t;
  static constexpr Exponent<Word> kExponent{0x7F80U, 0x0080U};
};

// What an element is while it is added to or multiplied.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr std::size_t kBlock = 1024;  // elements between two looks at what was found

template <typename T>
typename Bits<T>::Word note_of(T value) noexcept {
  return Bits<T>::kExponent.note(std::bit_cast<typename Bits<T>::Word>(value));
}

template <typename T>
bool copy(std::span<T> to, const T* from, bool past_caches) noexcept {
  constexpr auto exponent = Bits<T>::kExponent;
  auto* const bytes = reinterpret_cast<std::byte*>(to.data());
  const auto* const source = reinterpret_cast<const std::byte*>(from);
  const auto lines = to.size_bytes() / kNotedLine;
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(bytes) % kNotedLine == 0;
  auto found = past_caches && is_aligned ? stream_lines(bytes, source, lines, exponent)
                                         : copy_lines(bytes, source, lines, exponent);
  for (auto i = lines * (kNotedLine / sizeof(T)); i < to.size(); ++i) {
    to[i] = from[i];
    found |= note_of(from[i]);
  }
  return exponent.is_full(found);
}

template <typename T>
bool add(std::span<T> to, const T* __restrict from) noexcept {
  typename Bits<T>::Word found = 0;
  auto* __restrict out = to.data();
  for (std::size_t i = 0; i < to.size(); ++i) {
    out[i] = static_cast<T>(static_cast<Wide<T>>(out[i]) + static_cast<Wide<T>>(from[i]));
    found |= note_of(out[i]);
  }
  return Bits<T>::kExponent.is_full(found);
}

template <typename T>
bool any_non_finite(std::span<T> values) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    typename Bits<T>::Word found = 0;
    for (const auto value : values.subspan(begin, std::min(kBlock, values.size() - begin))) {
      found |= note_of(value);
    }
    if (Bits<T>::kExponent.is_full(found)) return true;
  }
  return false;
}

// Sixteen running sums, whatever the width of registers; then one after the other.
template <typename T>
double squares(std::span<T> values) noexcept {
  constexpr std::size_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const auto whole = values.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(static_cast<Wide<T>>(values[i + lane]));
      sums[lane] += value * value;
    }
  }
  for (auto i = whole; i < values.size(); ++i) {
    const auto value = static_cast<double>(static_cast<Wide<T>>(values[i]));
    sums[i - whole] += value * value;
  }
  double sum = 0;
  for (const auto part : sums) sum += part;
  return sum;
}

template <typename T>
void multiply(std::span<T> values, double factor) noexcept {
  const auto by = static_cast<Wide<T>>(factor);
  for (auto& value : values) value = static_cast<T>(static_cast<Wide<T>>(value) * by);
}

template <typename T>
bool multiply_noting(std::span<T> values, double factor) noexcept {
  const auto by = static_cast<Wide<T>>(factor);
  typename Bits<T>::Word found = 0;
  for (auto& value : values) {
    found |= note_of(value);
    value = static_cast<T>(static_cast<Wide<T>>(value) * by);
  }
  return Bits<T>::kExponent.is_full(found);
}

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
      return walk(elements_of<c10::Half>(tensor));
    case at::kBFloat16:
      return walk(elements_of<c10::BFloat16>(tensor));
    default:
      throw UsageError(fmt::format("flat memory holds floating point, not {}",
                                   c10::toString(tensor.scalar_type())));
  }
}

// `from` with the dtype and strides of `to`.
at::Tensor like(const at::Tensor& to, const at::Tensor& from) {
  if (from.layout() == at::kStrided && from.scalar_type() == to.scalar_type() &&
      from.strides() == to.strides() && from.sizes() == to.sizes() && !from.is_conj() &&
      !from.is_neg()) {
    return from;
  }
  auto converted = at::empty_strided(to.sizes(), to.strides(), to.options());
  if (from.layout() == at::kStrided) return converted.copy_(from);
  return converted.zero_().add_(from);
}

}  // namespace

bool copy_noting_non_finite(const at::Tensor& to, const at::Tensor& from) {
  const auto source = like(to, from);
  // A part may be small: what was written of the whole since its last turn is what counts.
  const bool past_caches = to.storage().nbytes() >= kStreamBytes;
  return with_elements(to, [&]<typename T>(std::span<T> elements) {
    return copy(elements, static_cast<const T*>(source.const_data_ptr()), past_caches);
  });
}

bool add_noting_non_finite(const at::Tensor& to, const at::Tensor& from) {
  const auto source = like(to, from);
  return with_elements(to, [&]<typename T>(std::span<T> elements) {
    return add(elements, static_cast<const T*>(source.const_data_ptr()));
  });
}

bool has_non_finite(const at::Tensor& flat) {
  return with_elements(flat, [](auto elements) { return any_non_finite(elements); });
}

double squared_norm(const at::Tensor& flat) {
  return with_elements(flat, [](auto elements) { return squares(elements); });
}

void scale(const at::Tensor& flat, double factor) {
  with_elements(flat, [factor](auto elements) { multiply(elements, factor); });
}

bool scale_noting_non_finite(const at::Tensor& flat, double factor) {
  return with_elements(flat, [factor](auto elements) { return multiply_noting(elements, factor); });
}

std::uint64_t digest_of(const at::Tensor& flat) {
  return digest({static_cast<const std::byte*>(flat.const_data_ptr()), flat.nbytes()});
}

}  // namespace lockstep
