// Text to tokens and back. A tokenizer may remember what it has met: one a thread, made by clone(),
// which shares the tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using Token = std::uint32_t;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the tokens of `text` to `tokens`. Text that looks like a special token, such as
  /// "<|endoftext|>", is text. Throws UsageError with the offset when the tokenizer needs UTF-8 and
  /// `text` is not; `tokens` is unchanged then.
  virtual void encode(std::string_view text, std::vector<Token>& tokens) = 0;

  /// A place at or after `from` where `text` may be cut: the tokens of the parts are the whole's.
  /// The end of `text` if there is none.
  [[nodiscard]] virtual std::size_t cut(std::string_view text, std::size_t from) const noexcept = 0;

  /// The bytes that the tokens stand for; special ones stand for their names. Throws UsageError for
  /// a token that is none.
  [[nodiscard]] virtual std::string decode(std::span<const Token> tokens) const = 0;

  /// Tokens are below this.
  [[nodiscard]] virtual Token vocabulary_size() const noexcept = 0;

  /// The token that goes between documents, if there is one.
  [[nodiscard]] virtual std::optional<Token> end_of_text() const noexcept = 0;

  /// Another of the same, for another thread.
  [[nodiscard]] virtual std::unique_ptr<Tokenizer> clone() const = 0;

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
};

/// Every byte is the token of its value: 256 of them, none special.
[[nodiscard]] std::unique_ptr<Tokenizer> byte_tokenizer();

/// The tokenizer that `what` names: "bytes"; the path of a .tiktoken file; the path of a vocab.bpe
/// file; or of a folder that has vocab.bpe, and encoder.json beside it or not, or one .tiktoken
/// file. Throws UsageError that lists these forms when it is none of them.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what);

}  // namespace lockstep
