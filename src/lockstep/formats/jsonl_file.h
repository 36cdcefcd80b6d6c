// JSON lines: one object per line; one of its fields is the text of a document. The file is mapped;
// the constructor reads it once to find the lines (16 bytes of memory per line). document() parses
// a line.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/formats/file_bytes.h"
#include "lockstep/formats/text_file.h"

namespace lockstep {

struct JsonlOptions {
  std::string field = "text";  // of the outermost object
};

class JsonlFile {
 public:
  explicit JsonlFile(FileBytes file, JsonlOptions options = {});

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return lines_.num_documents(); }

  /// The text of document `index`, as UTF-8. Throws UsageError, with the document's index, if the
  /// line is not one JSON object that has the field exactly once, as a string.
  [[nodiscard]] std::string document(std::uint64_t index) const;

  [[nodiscard]] const FileBytes& file() const noexcept { return lines_.file(); }

 private:
  TextFile lines_;
  JsonlOptions options_;
};

}  // namespace lockstep
