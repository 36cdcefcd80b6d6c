#include "lockstep/formats/safetensors_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/formats/name_list_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

std::optional<ElementType> type_of(SafetensorsDtype dtype) {
  switch (dtype) {
    case SafetensorsDtype::boolean:
      return ElementType::boolean;
    case SafetensorsDtype::u8:
      return ElementType::u8;
    case SafetensorsDtype::i8:
      return ElementType::i8;
    case SafetensorsDtype::u16:
      return ElementType::u16;
    case SafetensorsDtype::i16:
      return ElementType::i16;
    case SafetensorsDtype::u32:
      return ElementType::u32;
    case SafetensorsDtype::i32:
      return ElementType::i32;
    case SafetensorsDtype::u64:
      return ElementType::u64;
    case SafetensorsDtype::i64:
      return ElementType::i64;
    case SafetensorsDtype::f16:
      return ElementType::f16;
    case SafetensorsDtype::bf16:
      return ElementType::bf16;
    case SafetensorsDtype::f32:
      return ElementType::f32;
    case SafetensorsDtype::f64:
      return ElementType::f64;
    default:
      return std::nullopt;
  }
}

SafetensorsHeader read_header(const FileBytes& file) {
  try {
    return parse_safetensors_file(file.bytes());
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", file.name(), error.what()));
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(FileBytes file)
    : file_(std::move(file)), header_(read_header(file_)) {
  for (const auto& entry : header_.entries) names_.push_back(entry.name);
}

Array SafetensorsFile::array(std::string_view name) const {
  const auto entry = std::ranges::find(header_.entries, name, &SafetensorsEntry::name);
  if (entry == header_.entries.end()) {
    throw UsageError(fmt::format("{} has no tensor {}; it has {}", file_.name(), in_quotes(name),
                                 name_list(names_)));
  }
  const auto type = type_of(entry->dtype);
  if (!type) {
    refuse(
        file_, header_.data_offset + entry->begin,
        fmt::format("expected tensor {} with a supported dtype (BOOL, U8 to U64, I8 to I64, F16, "
                    "BF16, F32, F64), found {}",
                    in_quotes(name), safetensors_dtype_name(entry->dtype)));
  }
  return {*type, entry->shape,
          file_.bytes().subspan(header_.data_offset + entry->begin, entry->end - entry->begin)};
}

}  // namespace lockstep
