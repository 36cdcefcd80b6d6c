// A mapped safetensors file. safetensors_header.h parses the header strictly; tensors are views of
// the mapping.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/element_type.h"
#include "lockstep/formats/file_bytes.h"
#include "lockstep/formats/safetensors_header.h"

namespace lockstep {

class SafetensorsFile {
 public:
  /// Throws UsageError, naming the file, if its header is invalid.
  explicit SafetensorsFile(FileBytes file);

  [[nodiscard]] const SafetensorsHeader& header() const noexcept { return header_; }
  /// The tensors' names, in the order of the data.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

  /// The tensor `name`. Valid while this object or a copy of it exists. Throws UsageError if there
  /// is no such tensor (the message lists the names), and for unsupported dtypes: floats of 4, 6
  /// and 8 bits, and complex numbers.
  [[nodiscard]] Array array(std::string_view name) const;

  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  SafetensorsHeader header_;
  std::vector<std::string> names_;
};

}  // namespace lockstep
