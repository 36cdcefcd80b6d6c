// A mapped file of tokens: unsigned integers of 2 or 4 bytes, little-endian. Either raw (nanoGPT's
// train.bin), or llm.c's format: a header of 256 int32 (magic number, version, count), then the
// tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class TokenLayout {
  detect,      // llmc if the file has its magic number, else raw_uint16
  raw_uint16,  // no header
  raw_uint32,
  llmc,  // magic number 20240520, version 1: uint16; magic number 20240801, version 7: uint32
};

class TokenFile {
 public:
  /// Throws UsageError if the file does not have that layout, is truncated, or has extra bytes.
  explicit TokenFile(FileBytes file, TokenLayout layout = TokenLayout::detect);

  /// Writes tokens [first, first + out.size()) to `out`. The range must be within the file.
  void read(std::uint64_t first, std::span<std::int64_t> out) const;

  /// All tokens as stored in the file. Aligned, because files are mapped at page boundaries.
  [[nodiscard]] std::span<const std::byte> token_data() const noexcept {
    return file_.bytes().subspan(data_offset_);
  }
  [[nodiscard]] std::uint64_t num_tokens() const noexcept { return num_tokens_; }
  [[nodiscard]] unsigned token_bytes() const noexcept { return token_bytes_; }
  /// The detected layout, never `detect`.
  [[nodiscard]] TokenLayout layout() const noexcept { return layout_; }
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  FileBytes file_;
  TokenLayout layout_;
  std::uint64_t data_offset_ = 0;
  std::uint64_t num_tokens_ = 0;
  unsigned token_bytes_ = 2;
};

/// "raw uint16 tokens" and so on.
[[nodiscard]] std::string_view token_layout_words(TokenLayout layout, unsigned token_bytes);

}  // namespace lockstep
