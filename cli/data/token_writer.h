// Writes a token file under a temporary name and renames it when it is complete.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/file_descriptor.h"

namespace lockstep::cli {

struct TokenWriterOptions {
  unsigned token_bytes = 2;  // 2 or 4
  bool llmc_header = false;
};

class TokenWriter {
 public:
  /// Creates the temporary file. Throws SystemError.
  TokenWriter(std::string path, TokenWriterOptions options);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  /// Removes the temporary file unless finish() was called.
  ~TokenWriter();

  /// Appends `tokens`, which must fit the width. Throws SystemError.
  void write(std::span<const std::uint32_t> tokens);

  /// Renames the complete file. Throws SystemError, and UsageError when the number of tokens
  /// exceeds llm.c's header.
  void finish();

  [[nodiscard]] std::uint64_t num_tokens() const noexcept { return num_tokens_; }

 private:
  void write_header();

  std::string path_;
  std::string unfinished_;
  TokenWriterOptions options_;
  FileDescriptor file_;
  std::uint64_t num_tokens_ = 0;
};

}  // namespace lockstep::cli
