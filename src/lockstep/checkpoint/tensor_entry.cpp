#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/checkpoint/tensor_entry_internal.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<SafetensorsDtype, at::ScalarType>, 19> kDtypes{{
    {SafetensorsDtype::boolean, at::kBool},
    {SafetensorsDtype::u8, at::kByte},
    {SafetensorsDtype::i8, at::kChar},
    {SafetensorsDtype::f8_e5m2, at::kFloat8_e5m2},
    {SafetensorsDtype::f8_e4m3, at::kFloat8_e4m3fn},
    {SafetensorsDtype::f8_e8m0, at::kFloat8_e8m0fnu},
    {SafetensorsDtype::f8_e4m3fnuz, at::kFloat8_e4m3fnuz},
    {SafetensorsDtype::f8_e5m2fnuz, at::kFloat8_e5m2fnuz},
    {SafetensorsDtype::i16, at::kShort},
    {SafetensorsDtype::u16, at::kUInt16},
    {SafetensorsDtype::f16, at::kHalf},
    {SafetensorsDtype::bf16, at::kBFloat16},
    {SafetensorsDtype::i32, at::kInt},
    {SafetensorsDtype::u32, at::kUInt32},
    {SafetensorsDtype::f32, at::kFloat},
    {SafetensorsDtype::c64, at::kComplexFloat},
    {SafetensorsDtype::f64, at::kDouble},
    {SafetensorsDtype::i64, at::kLong},
    {SafetensorsDtype::u64, at::kUInt64},
}};

}  // namespace

SafetensorsEntry entry_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_quantized()) {
    throw UsageError(
        fmt::format("tensor {} is undefined, sparse or quantized; checkpoints support only dense "
                    "tensors",
                    in_quotes(name)));
  }
  return entry_of(name, tensor.scalar_type(), tensor.sizes());
}

SafetensorsEntry entry_of(const std::string& name, at::ScalarType dtype, at::IntArrayRef sizes) {
  for (const auto& [saved, type] : kDtypes) {
    if (type != dtype) continue;
    SafetensorsEntry entry{.name = name, .dtype = saved, .shape = {}};
    for (const auto size : sizes) entry.shape.push_back(static_cast<std::uint64_t>(size));
    return entry;
  }
  throw UsageError(fmt::format("tensor {} has the dtype {}, which safetensors does not support",
                               in_quotes(name), c10::toString(dtype)));
}

at::ScalarType scalar_type_of(SafetensorsDtype dtype) {
  for (const auto& [known, type] : kDtypes) {
    if (known == dtype) return type;
  }
  throw UsageError(
      fmt::format("the dtype {} is not supported by this LibTorch", safetensors_dtype_name(dtype)));
}

std::string kind_words(const SafetensorsEntry& entry) {
  return fmt::format("{}[{}]", safetensors_dtype_name(entry.dtype), fmt::join(entry.shape, ", "));
}

}  // namespace lockstep
