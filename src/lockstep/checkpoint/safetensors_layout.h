// Where each tensor goes in a safetensors file that is to be written, and the bytes in front of
// them. As the reference's writer does it: later dtypes of SafetensorsDtype (the wider ones) first,
// then by name, one behind the other; the header is padded with spaces so that the data begins at a
// multiple of 8. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/formats/safetensors_header.h"

namespace lockstep {

struct SafetensorsLayout {
  std::vector<SafetensorsEntry> entries;  // in the order of the data, with begin and end
  std::vector<std::size_t> sources;       // entries[i] was the sources[i]-th of those given
  std::vector<std::byte> head;            // everything before the data: length and header
  std::uint64_t data_bytes = 0;
};

/// Lays out tensors of which name, dtype and shape are given. What reads safetensors files, here or
/// in Python, reads the result.
/// Throws UsageError for a name that comes twice, is "__metadata__" or is no UTF-8, and for more
/// than a file can hold.
[[nodiscard]] SafetensorsLayout lay_out_safetensors(
    const std::vector<SafetensorsEntry>& tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
