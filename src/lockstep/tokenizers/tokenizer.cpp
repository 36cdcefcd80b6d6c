#include "lockstep/tokenizers/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/formats/file_bytes.h"
#include "lockstep/tokenizers/bpe_tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class ByteTokenizer final : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<Token>& tokens) override {
    tokens.reserve(tokens.size() + text.size());
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
  [[nodiscard]] std::size_t cut(std::string_view text, std::size_t from) const noexcept override {
    return std::min(from, text.size());
  }
  [[nodiscard]] std::string decode(std::span<const Token> tokens) const override {
    std::string text;
    for (const auto token : tokens) {
      if (token >= vocabulary_size()) {
        throw UsageError(
            fmt::format("token {} is invalid: the byte tokenizer has 0 to 255", token));
      }
      text += static_cast<char>(token);
    }
    return text;
  }
  [[nodiscard]] Token vocabulary_size() const noexcept override { return 256; }
  [[nodiscard]] std::optional<Token> end_of_text() const noexcept override { return std::nullopt; }
  [[nodiscard]] std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<ByteTokenizer>();
  }
};

[[noreturn]] void refuse_name(const std::string& what) {
  throw UsageError(fmt::format(
      "\"{}\" is not a tokenizer; expected \"bytes\", a .tiktoken file, a vocab.bpe file, or a "
      "folder with one of them (`lockstep data fetch gpt2-bpe` downloads GPT-2's)",
      what));
}

// The table file in a folder; a path that is not a folder is returned unchanged.
fs::path table_file(const std::string& what) {
  if (!fs::is_directory(what)) return what;
  auto merges = fs::path(what) / "vocab.bpe";
  if (fs::exists(merges)) return merges;
  std::vector<fs::path> tables;
  for (const auto& entry : fs::directory_iterator(what)) {
    if (entry.path().extension() == ".tiktoken") tables.push_back(entry.path());
  }
  if (tables.size() != 1) refuse_name(what);
  return tables.front();
}

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what) {
  if (what == "bytes") return byte_tokenizer();
  const auto path = table_file(what);
  if (path.extension() == ".tiktoken") {
    return bpe_tokenizer(BpeTable::from_tiktoken(FileBytes::map(path)));
  }
  if (path.extension() != ".bpe") refuse_name(what);
  std::optional<FileBytes> encoder;
  const auto beside = path.parent_path() / "encoder.json";
  if (fs::exists(beside)) encoder = FileBytes::map(beside);
  return bpe_tokenizer(BpeTable::from_gpt2(FileBytes::map(path), encoder));
}

}  // namespace lockstep
