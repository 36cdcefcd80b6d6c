// encoder.json: one JSON object that maps tokens, written in letters, to their numbers.
#pragma once

#include <string>
#include <vector>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

/// The bytes of each token, by number. The numbers must be 0 to n - 1, each once. Throws
/// UsageError.
[[nodiscard]] std::vector<std::string> read_encoder_json(const FileBytes& file);

}  // namespace lockstep
