// The layout of a safetensors file to be written: the offset of each tensor, and the header. The
// layout is that of the reference implementation: later dtypes of SafetensorsDtype (the wider ones)
// first, then by name, contiguous; the header is padded with spaces so that the data begins at a
// multiple of 8. A pure function.
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
  std::vector<std::size_t> sources;       // entries[i] is tensors[sources[i]]
  std::vector<std::byte> head;            // the bytes before the data: length and header
  std::uint64_t data_bytes = 0;
};

/// Computes the layout from name, dtype and shape of each tensor. All safetensors readers,
/// including Python's, accept the result. Throws UsageError for a repeated name, the name
/// "__metadata__", a name that is not valid UTF-8, and a tensor that is too large.
[[nodiscard]] SafetensorsLayout lay_out_safetensors(
    const std::vector<SafetensorsEntry>& tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
