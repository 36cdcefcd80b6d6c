// Small generated tokenizer files and a check of the tokenizer's guarantees, for the tests and the
// fuzz target.
#pragma once

#include <string>

namespace lockstep {

inline constexpr int kNumTableFiles = 3;  // vocab.bpe, encoder.json, a tiktoken file

[[nodiscard]] std::string sample_vocab_bpe();
[[nodiscard]] std::string sample_encoder_json();
[[nodiscard]] std::string sample_tiktoken();
[[nodiscard]] std::string sample_table_file(int kind);

/// Reads `bytes` as that kind of file and, if it is valid, encodes and decodes a text with it.
/// Throws UsageError.
void use_table_file(int kind, const std::string& bytes);

}  // namespace lockstep
