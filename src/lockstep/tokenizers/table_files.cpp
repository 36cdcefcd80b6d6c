#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/json.h"
#include "lockstep/tokenizers/bpe_tokenizer.h"
#include "lockstep/tokenizers/byte_letters_internal.h"
#include "lockstep/tokenizers/table_files_internal.h"

namespace lockstep {
namespace {

// Ġ is the letter for a space.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kMerges{{
    {"t", "h"},
    {"th", "e"},
    {"\u0120", "the"},
    {"a", "a"},
    {"aa", "aa"},
    {"r", "e"},
    {"the", "re"},
    {"\u0120", "\u0120"},
}};

std::vector<std::string> tokens() {
  std::vector<std::string> all;
  for (const auto byte : bytes_in_order()) all.emplace_back(1, static_cast<char>(byte));
  for (const auto& [left, right] : kMerges) {
    all.push_back(*try_bytes_of_letters(std::string(left) + std::string(right)));
  }
  return all;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      word = word << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += at + i <= bytes.size() ? letters[word >> (18 - 6 * i) & 63u] : '=';
    }
  }
  return text;
}

std::string in_letters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    // Finds the letter of a byte by trying all letters; only for tests.
    for (char32_t c = 0x21; c < 0x144; ++c) {
      const std::string letter = c < 0x80 ? std::string(1, static_cast<char>(c))
                                          : std::string{static_cast<char>(0xc0 | c >> 6),
                                                        static_cast<char>(0x80 | (c & 63))};
      if (try_bytes_of_letters(letter) == std::string(1, byte)) text += letter;
    }
  }
  return text;
}

}  // namespace

std::string sample_vocab_bpe() {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : kMerges) text += fmt::format("{} {}\n", left, right);
  return text;
}

std::string sample_encoder_json() {
  nlohmann::json numbers;
  for (const auto& token : tokens()) numbers[in_letters(token)] = numbers.size();
  numbers["<|endoftext|>"] = numbers.size();
  return numbers.dump();
}

std::string sample_tiktoken() {
  std::string text;
  std::size_t rank = 0;
  for (const auto& token : tokens()) text += fmt::format("{} {}\n", base64(token), rank++);
  return text;
}

std::string sample_table_file(int kind) {
  if (kind == 0) return sample_vocab_bpe();
  return kind == 1 ? sample_encoder_json() : sample_tiktoken();
}

void use_table_file(int kind, const std::string& bytes) {
  const auto file = FileBytes::of("table", bytes);
  auto table = kind == 0 ? BpeTable::from_gpt2(file, std::nullopt)
               : kind == 1
                   ? BpeTable::from_gpt2(FileBytes::of("vocab.bpe", sample_vocab_bpe()), file)
                   : BpeTable::from_tiktoken(file);
  const auto tokenizer = bpe_tokenizer(std::move(table));
  const std::string text =
      "  the cat's there aaaaaaa\n\n" + std::string(100, 'a') + " \u00e9\u6f22";
  std::vector<Token> encoded;
  tokenizer->encode(text, encoded);
  for (const auto token : encoded) {
    LOCKSTEP_ASSERT(token < tokenizer->vocabulary_size(), "tokens are below the vocabulary size");
  }
  LOCKSTEP_ASSERT(tokenizer->decode(encoded) == text, "decode() inverts encode()");
}

}  // namespace lockstep
