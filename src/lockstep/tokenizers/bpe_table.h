// The tables of a byte-pair tokenizer, read from GPT-2's file formats. Words: a token is a string
// of bytes with a number; a merge replaces two adjacent tokens by one; the rank of a merge is its
// position in the order of learning, and lower ranks are applied first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/formats/file_bytes.h"
#include "lockstep/tokenizers/tokenizer.h"

namespace lockstep {

struct BpeMerge {
  std::uint32_t rank = 0;
  Token merged = 0;
};

class BpeTable {
 public:
  /// `vocab_bpe` lists the merges in order; `encoder_json` has the tokens' numbers. Without it, the
  /// numbers follow GPT-2's rule: bytes first, then the result of each merge, then <|endoftext|>.
  /// Throws UsageError with file and offset.
  [[nodiscard]] static BpeTable from_gpt2(const FileBytes& vocab_bpe,
                                          const std::optional<FileBytes>& encoder_json);

  /// One line per token: its bytes in base64, a space, its number, which is also its rank. Throws
  /// UsageError for invalid files, and for the tables cl100k_base and o200k_base, which split text
  /// by another pattern.
  [[nodiscard]] static BpeTable from_tiktoken(const FileBytes& file);

  /// The merge of the adjacent tokens `left` and `right`, if there is one.
  [[nodiscard]] std::optional<BpeMerge> try_merge(Token left, Token right) const noexcept;

  [[nodiscard]] Token token_of_byte(unsigned char byte) const noexcept { return bytes_[byte]; }
  /// The bytes of each token, by number.
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::optional<Token> end_of_text() const noexcept { return end_of_text_; }

 private:
  struct Entry {
    std::uint64_t pair = kNoPair;  // left and right
    BpeMerge merge;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  BpeTable() = default;
  void reserve_merges(std::size_t num_merges);
  /// Returns false if the pair already has a merge.
  [[nodiscard]] bool add_merge(Token left, Token right, BpeMerge merge);
  [[nodiscard]] std::size_t index_of(std::uint64_t pair) const noexcept;

  std::vector<std::string> tokens_;
  std::array<Token, 256> bytes_{};
  std::vector<Entry> entries_;  // a hash table with open addressing, at most half full
  std::size_t mask_ = 0;
  std::optional<Token> end_of_text_;
};

}  // namespace lockstep
