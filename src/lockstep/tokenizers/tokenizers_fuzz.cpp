// Fuzz target: the first byte selects one of the tokenizer files, or text. A file is either refused
// with a UsageError or gives a tokenizer whose decode() inverts encode(). Text is encoded and
// decoded without a change, or refused because it is not UTF-8.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/tokenizers/bpe_tokenizer.h"
#include "lockstep/tokenizers/table_files_internal.h"
#include "lockstep/tokenizers/unicode.h"

namespace {

void round_trip(const std::string& text) {
  const auto tokenizer = lockstep::bpe_tokenizer(lockstep::BpeTable::from_gpt2(
      lockstep::FileBytes::of("vocab.bpe", lockstep::sample_vocab_bpe()), std::nullopt));
  const bool valid = !lockstep::try_find_invalid_utf8(text);
  try {
    std::vector<lockstep::Token> tokens;
    tokenizer->encode(text, tokens);
    LOCKSTEP_ASSERT(valid && tokenizer->decode(tokens) == text, "decode() inverts encode()");
  } catch (const lockstep::UsageError&) {
    LOCKSTEP_ASSERT(!valid, "valid UTF-8 is accepted");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const int kind = data[0] % (lockstep::kNumTableFiles + 1);
  const auto bytes = std::span(data, size).subspan(1);
  const std::string text(bytes.begin(), bytes.end());
  try {
    if (kind < lockstep::kNumTableFiles) {
      lockstep::use_table_file(kind, text);
    } else {
      round_trip(text);
    }
  } catch (const lockstep::UsageError& error) {
    for (const char c : std::string(error.what())) {
      LOCKSTEP_ASSERT(c >= 0x20 && c < 0x7f, "a message has no control characters");
    }
  }
  return 0;
}
