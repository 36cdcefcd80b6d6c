// A mapped text file as a list of documents. The user chooses how documents are separated. The
// encoding is not checked here: only some tokenizers require UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class DocumentBreak {
  whole_file,  // one document
  line,        // every line that is not empty, without its LF or CRLF
  blank_line,  // paragraphs: documents are separated by one or more empty lines
  marker,      // documents are separated by TextOptions::marker
};

struct TextOptions {
  DocumentBreak documents = DocumentBreak::whole_file;
  std::string marker = "<|endoftext|>";
};

class TextFile {
 public:
  /// Reads the file once to find the documents (16 bytes of memory each), except for whole_file.
  /// Empty documents are left out. Throws UsageError for an empty marker.
  explicit TextFile(FileBytes file, const TextOptions& options = {});

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return documents_.size(); }
  [[nodiscard]] std::string_view document(std::uint64_t index) const {
    const auto [begin, end] = documents_.at(index);
    return file_.text().substr(begin, end - begin);
  }
  /// The offset of the document in the file.
  [[nodiscard]] std::uint64_t offset(std::uint64_t index) const {
    return documents_.at(index).begin;
  }
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  struct Position {
    std::uint64_t begin;
    std::uint64_t end;
  };

  void find_lines();
  void find_paragraphs();
  void find_between(std::string_view marker);

  FileBytes file_;
  std::vector<Position> documents_;
};

}  // namespace lockstep
