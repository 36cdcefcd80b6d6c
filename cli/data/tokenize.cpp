#include "cli/data/tokenize.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "cli/cache.h"
#include "cli/data/token_writer.h"
#include "lockstep/base/error.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/formats/jsonl_file.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kPartBytes = 4u << 20;

// Calls `use` with every document of every file.
template <typename Use>
void for_each_document(const std::vector<std::string>& files, const TokenizeOptions& options,
                       Use use) {
  for (const auto& path : files) {
    const auto file = FileBytes::map(path);
    if (identify(file) == FileKind::jsonl) {
      const JsonlFile lines(file, {.field = options.field});
      for (std::uint64_t i = 0; i < lines.num_documents(); ++i) use(path, lines.document(i));
      continue;
    }
    const TextFile text(file, options.text);
    for (std::uint64_t i = 0; i < text.num_documents(); ++i) use(path, text.document(i));
  }
}

}  // namespace

Tokenized tokenize(const std::vector<std::string>& files, Tokenizer& tokenizer,
                   const std::string& output, const TokenizeOptions& options) {
  Tokenized done{.token_bytes = tokenizer.vocabulary_size() > 65536 ? 4u : 2u};
  TokenWriter writer(output, {.token_bytes = done.token_bytes, .llmc_header = options.llmc_header});
  std::vector<Token> tokens;
  for_each_document(files, options, [&](const std::string& path, std::string_view text) {
    if (done.num_documents++ > 0 && tokenizer.end_of_text()) {
      writer.write(std::array{*tokenizer.end_of_text()});
    }
    // In parts: memory does not grow with the document.
    for (std::size_t at = 0; at < text.size();) {
      const auto part = text.substr(at, tokenizer.cut(text, at + kPartBytes) - at);
      const auto begin = std::chrono::steady_clock::now();
      try {
        tokenizer.encode(part, tokens);
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("{}, document {}, at or after byte {}: {}", path,
                                     done.num_documents - 1, at, error.what()));
      }
      done.spent += std::chrono::steady_clock::now() - begin;
      writer.write(tokens);
      tokens.clear();
      at += part.size();
    }
    done.num_bytes += text.size();
  });
  done.num_tokens = writer.num_tokens();
  writer.finish();
  return done;
}

std::string tokenizer_path(const std::string& what, const Environment& environment) {
  if (what != "gpt2") return what;
  const auto folder = data_cache(environment) / "gpt2-bpe";
  if (!std::filesystem::exists(folder)) {
    throw UsageError(fmt::format(
        "GPT-2's table is not in {}: run `lockstep data fetch gpt2-bpe`, or name another tokenizer "
        "with --tokenizer",
        folder.string()));
  }
  return folder;
}

}  // namespace lockstep::cli
