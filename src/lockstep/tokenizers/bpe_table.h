// The tables of a byte-pair tokenizer, read from the files that GPT-2's come in. Words: a token is
// a string of bytes with a number; a merge says that two tokens side by side become one; the rank
// of a merge is its place in the order of learning, and lower ranks go first.
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
  /// `vocab_bpe` lists the merges in order; `encoder_json` gives the tokens' numbers. Without it
  /// they follow from the merges, by GPT-2's rule: bytes first, then each merge's result, then
  /// <|endoftext|>. Throws UsageError with file and offset.
  [[nodiscard]] static BpeTable from_gpt2(const FileBytes& vocab_bpe,
                                          const std::optional<FileBytes>& encoder_json);

  /// A line a token: its bytes in base64, a space, its number, which is also its rank. Throws
  /// UsageError, also for the tables cl100k_base and o200k_base: their text is split otherwise.
  [[nodiscard]] static BpeTable from_tiktoken(const FileBytes& file);

  /// What `left` and `right` side by side become, if anything.
  [[nodiscard]] std::optional<BpeMerge> try_merge(Token left, Token right) const noexcept;

  [[nodiscard]] Token token_of_byte(unsigned char byte) const noexcept { return bytes_[byte]; }
  /// The bytes of each token, by number.
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::optional<Token> end_of_text() const noexcept { return end_of_text_; }

 private:
  struct Slot {
    std::uint64_t pair = kNoPair;  // left and right
    BpeMerge merge;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  BpeTable() = default;
  void reserve_merges(std::size_t num_merges);
  /// False when the pair has a merge already.
  [[nodiscard]] bool add_merge(Token left, Token right, BpeMerge merge);
  [[nodiscard]] std::size_t slot_of(std::uint64_t pair) const noexcept;

  std::vector<std::string> tokens_;
  std::array<Token, 256> bytes_{};
  std::vector<Slot> slots_;  // open addressing, at most half full
  std::size_t mask_ = 0;
  std::optional<Token> end_of_text_;
};

}  // namespace lockstep
