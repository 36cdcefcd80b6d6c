// Text to a file of tokens.
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
  unsigned token_bytes = 2;     // 4 for a vocabulary that needs it
  std::chrono::steady_clock::duration spent{};
};

/// Writes the tokens of `files`, text or JSON lines, to `output`, whole or not at all; one
/// end-of-text token goes between documents, if the tokenizer has one. Throws UsageError for text
/// that the tokenizer does not take, with file and offset.
Tokenized tokenize(const std::vector<std::string>& files, Tokenizer& tokenizer,
                   const std::string& output, const TokenizeOptions& options = {});

/// What open_tokenizer takes for `what`, which may also be gpt2: the table in the user's cache.
/// Throws UsageError when it is not there.
[[nodiscard]] std::string tokenizer_path(const std::string& what, const Environment& environment);

}  // namespace lockstep::cli
