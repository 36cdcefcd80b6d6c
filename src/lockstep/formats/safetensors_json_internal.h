// The JSON of a safetensors header as its events tell it: every value of the right kind and in its
// place, no key twice in one object but for tensor names. What the numbers mean is
// safetensors_header.cpp's affair.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/formats/safetensors_header.h"

namespace lockstep {

/// Reads JSON that begins with { and may be padded with spaces. The entries come in the order of
/// the text with what it claims of them. Throws UsageError.
[[nodiscard]] SafetensorsHeader read_safetensors_json(std::string_view json);

/// Throws the UsageError that every refusal of a header is.
[[noreturn]] void refuse_safetensors(std::string_view reason);

/// Text of the file as a message may show it: short, and nothing that a terminal or a log would
/// obey.
[[nodiscard]] std::string shown(std::string_view text);

/// The dtype of that name, if there is one.
[[nodiscard]] std::optional<SafetensorsDtype> try_safetensors_dtype(std::string_view name) noexcept;

}  // namespace lockstep
