// Converts text to a token file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/formats/text_file.h"
#include "lockstep/tokenizers/tokenizer.h"

namespace lockstep::cli {

struct TokenizeOptions {
  TextOptions text = {};
  std::string field = "text";  // of JSON lines
  bool llmc_header = false;
};

struct Tokenized {
  std::uint64_t num_tokens = 0;
  std::uint64_t num_documents = 0;
  std::uint64_t num_bytes = 0;  // of text
  unsigned token_bytes = 2;     // 4 for a vocabulary above 65536
  std::chrono::steady_clock::duration spent{};
};

/// Writes the tokens of `files`, text or JSON lines, to `output`, which appears atomically; writes
/// one end-of-text token between documents, if the tokenizer has one. Throws UsageError, with file
/// and offset, for text that the tokenizer does not accept.
Tokenized tokenize(const std::vector<std::string>& files, Tokenizer& tokenizer,
                   const std::string& output, const TokenizeOptions& options = {});

/// The argument of open_tokenizer for `what`: for gpt2 the table in the user's cache, else `what`.
/// Throws UsageError when the table is not in the cache.
[[nodiscard]] std::string tokenizer_path(const std::string& what, const Environment& environment);

}  // namespace lockstep::cli
