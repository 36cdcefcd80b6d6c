// Parses the JSON of a safetensors header from parser events and checks its structure: each value
// has the expected type and position, and no key is repeated in an object, except tensor names.
// safetensors_header.cpp checks the numbers and the names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/formats/safetensors_header.h"

namespace lockstep {

/// Parses JSON that begins with { and may be padded with spaces. The entries are in the order of
/// the text, with unchecked numbers. Throws UsageError.
[[nodiscard]] SafetensorsHeader read_safetensors_json(std::string_view json);

/// Throws UsageError "the safetensors header is invalid: <reason>; …".
[[noreturn]] void refuse_safetensors(std::string_view reason);

/// Text of the file for a message: quoted, shortened, and without control characters.
[[nodiscard]] std::string shown(std::string_view text);

/// The dtype with that name, if there is one.
[[nodiscard]] std::optional<SafetensorsDtype> try_safetensors_dtype(std::string_view name) noexcept;

}  // namespace lockstep
