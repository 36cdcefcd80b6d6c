// The text of an npy header: a Python dict with exactly descr, fortran_order and shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

struct NpyHeader {
  std::string descr;  // as written, such as "<f4"
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
};

/// Parses bytes [begin, end) of `file`. Throws UsageError.
[[nodiscard]] NpyHeader parse_npy_header(const FileBytes& file, std::uint64_t begin,
                                         std::uint64_t end);

}  // namespace lockstep
