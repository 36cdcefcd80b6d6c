// Writes a token file beside its name and renames it when it is whole, so that nothing reads half
// of one.
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
  /// Throws SystemError when the file cannot be made.
  TokenWriter(std::string path, TokenWriterOptions options);
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;
  /// Removes what was not finished.
  ~TokenWriter();

  /// Tokens fit the width. Throws SystemError.
  void write(std::span<const std::uint32_t> tokens);

  /// Completes the file under its name. Throws UsageError when llm.c's header cannot hold the
  /// count.
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
