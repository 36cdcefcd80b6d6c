#include "lockstep/tokenizers/bpe_tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tokenizers/bpe_merge_internal.h"
#include "lockstep/tokenizers/gpt2_split.h"
#include "lockstep/tokenizers/unicode.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxCachedBytes = 15;
constexpr std::size_t kMaxCachedTokens = 4;

// A piece of up to 15 bytes and its length, as two words: equal pieces have equal keys.
struct PieceKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  friend bool operator==(const PieceKey&, const PieceKey&) = default;
};

PieceKey key_of(std::string_view piece) {
  std::array<char, 16> bytes{};
  std::memcpy(bytes.data(), piece.data(), piece.size());
  bytes[kMaxCachedBytes] = static_cast<char>(piece.size());  // never 0: no piece is empty
  PieceKey key;
  std::memcpy(&key.low, bytes.data(), 8);
  std::memcpy(&key.high, bytes.data() + 8, 8);
  return key;
}

struct CachedPiece {
  PieceKey key;
  std::uint32_t num_tokens = 0;
  std::array<Token, kMaxCachedTokens> tokens{};
};

// A direct-mapped cache: each entry has the piece that used it last.
class PieceCache {
 public:
  PieceCache() : entries_(kNumEntries) {}

  CachedPiece& entry(const PieceKey& key) {
    const auto mixed = (key.low ^ (key.high * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
    return entries_[mixed >> (64 - kIndexBits)];
  }

 private:
  static constexpr unsigned kIndexBits = 15;
  static constexpr std::size_t kNumEntries = std::size_t{1} << kIndexBits;  // 1.3 MB: fits in L2
  std::vector<CachedPiece> entries_;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // The table is shared by the clones, one per thread.
  explicit BpeTokenizer(std::shared_ptr<const BpeTable> table) : table_(std::move(table)) {}

  void encode(std::string_view text, std::vector<Token>& tokens) override {
    if (const auto at = try_find_invalid_utf8(text)) {
      throw UsageError(fmt::format(
          "byte {} of the text is 0x{:02x}, which is not valid UTF-8; convert the text to UTF-8",
          *at, static_cast<unsigned char>(text[*at])));
    }
    for (std::size_t begin = 0; begin < text.size();) {
      const auto end = gpt2_piece_end(text, begin);
      encode_piece(text.substr(begin, end - begin), tokens);
      begin = end;
    }
  }

  [[nodiscard]] std::size_t cut(std::string_view text, std::size_t from) const noexcept override {
    return gpt2_cut(text, from);
  }

  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override {
    std::string text;
    for (const auto token : tokens) {
      if (token >= vocabulary_size()) {
        throw UsageError(fmt::format("token {} is invalid: the vocabulary has tokens 0 to {}",
                                     token, vocabulary_size() - 1));
      }
      text += table_->tokens()[token];
    }
    return text;
  }

  [[nodiscard]] Token vocabulary_size() const noexcept override {
    return static_cast<Token>(table_->tokens().size());
  }
  [[nodiscard]] std::optional<Token> end_of_text() const noexcept override {
    return table_->end_of_text();
  }
  [[nodiscard]] std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<BpeTokenizer>(table_);
  }

 private:
  void encode_piece(std::string_view piece, std::vector<Token>& tokens) {
    if (piece.size() > kMaxCachedBytes) {
      merge_piece(piece);
      tokens.insert(tokens.end(), merged_.begin(), merged_.end());
      return;
    }
    const auto key = key_of(piece);
    auto& cached = cache_.entry(key);
    if (cached.key != key) {
      merge_piece(piece);
      if (merged_.size() > kMaxCachedTokens) {
        tokens.insert(tokens.end(), merged_.begin(), merged_.end());
        return;
      }
      cached.key = key;
      cached.num_tokens = static_cast<std::uint32_t>(merged_.size());
      std::copy(merged_.begin(), merged_.end(), cached.tokens.begin());
    }
    tokens.insert(tokens.end(), cached.tokens.begin(), cached.tokens.begin() + cached.num_tokens);
  }

  void merge_piece(std::string_view piece) {
    merged_.clear();
    for (const char byte : piece) {
      merged_.push_back(table_->token_of_byte(static_cast<unsigned char>(byte)));
    }
    merge_tokens(*table_, merged_);
  }

  std::shared_ptr<const BpeTable> table_;
  PieceCache cache_;
  std::vector<Token> merged_;  // of the current piece
};

}  // namespace

std::unique_ptr<Tokenizer> bpe_tokenizer(BpeTable table) {
  return std::make_unique<BpeTokenizer>(std::make_shared<const BpeTable>(std::move(table)));
}

}  // namespace lockstep
