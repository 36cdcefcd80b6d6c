#include "lockstep/formats/element_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace lockstep {
namespace {

struct Facts {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array<Facts, 13> kFacts{{{"bool", 1},
                                        {"uint8", 1},
                                        {"int8", 1},
                                        {"uint16", 2},
                                        {"int16", 2},
                                        {"uint32", 4},
                                        {"int32", 4},
                                        {"uint64", 8},
                                        {"int64", 8},
                                        {"float16", 2},
                                        {"bfloat16", 2},
                                        {"float32", 4},
                                        {"float64", 8}}};

const Facts& facts(ElementType type) { return kFacts[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view element_type_name(ElementType type) noexcept { return facts(type).name; }

std::uint64_t element_type_bytes(ElementType type) noexcept { return facts(type).bytes; }

std::optional<std::uint64_t> try_array_bytes(std::span<const std::uint64_t> shape,
                                             ElementType type) noexcept {
  // All sizes are checked, even if one is zero, because strides are products of them.
  std::uint64_t product = element_type_bytes(type);
  bool empty = false;
  for (const auto size : shape) {
    if (size == 0) {
      empty = true;
      continue;
    }
    if (__builtin_mul_overflow(product, size, &product) || product >> 63 != 0) return std::nullopt;
  }
  return empty ? 0 : product;
}

std::string array_words(ElementType type, std::span<const std::uint64_t> shape) {
  return fmt::format("{}[{}]", element_type_name(type), fmt::join(shape, ", "));
}

}  // namespace lockstep
