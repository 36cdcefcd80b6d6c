// Converts text to tokens and back. A tokenizer has an internal cache, so it is not thread-safe:
// use one per thread, made by clone(), which shares the tables.
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
  /// "<|endoftext|>", is encoded as ordinary text. Throws UsageError, with the offset, if the
  /// tokenizer requires UTF-8 and `text` is invalid; `tokens` is then unchanged.
  virtual void encode(std::string_view text, std::vector<Token>& tokens) = 0;

  /// An offset at or after `from` where `text` can be divided: the tokens of the parts are the
  /// tokens of the whole. The end of `text` if there is none.
  [[nodiscard]] virtual std::size_t cut(std::string_view text, std::size_t from) const noexcept = 0;

  /// The bytes of the tokens. A special token decodes to its name. Throws UsageError for a token
  /// outside the vocabulary.
  [[nodiscard]] virtual std::string decode(std::span<const Token> tokens) const = 0;

  /// The number of tokens: valid tokens are below it.
  [[nodiscard]] virtual Token vocabulary_size() const noexcept = 0;

  /// The token between documents, if the tokenizer has one.
  [[nodiscard]] virtual std::optional<Token> end_of_text() const noexcept = 0;

  /// An equal tokenizer for another thread.
  [[nodiscard]] virtual std::unique_ptr<Tokenizer> clone() const = 0;

 protected:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = default;
  Tokenizer& operator=(const Tokenizer&) = default;
};

/// A tokenizer whose tokens are the byte values: 256 tokens, none special.
[[nodiscard]] std::unique_ptr<Tokenizer> byte_tokenizer();

/// Opens a tokenizer. `what` is "bytes", the path of a .tiktoken file, the path of a vocab.bpe
/// file, or a folder with vocab.bpe (and optionally encoder.json) or with one .tiktoken file.
/// Throws UsageError, listing these forms, for anything else, and for invalid files.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what);

}  // namespace lockstep
