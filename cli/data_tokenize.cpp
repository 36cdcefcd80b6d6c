// `lockstep data tokenize FILE… -o OUT.bin`
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>

#include "cli/arguments.h"
#include "cli/cache.h"
#include "cli/data_verbs.h"
#include "cli/token_writer.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/formats/jsonl_file.h"
#include "lockstep/formats/text_file.h"
#include "lockstep/tokenizers/tokenizer.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep data tokenize FILE… -o OUT.bin: text or JSON lines to a file of tokens\n"
    "\n"
    "  -o, --output FILE    where the tokens go: uint16, or uint32 for more than 65536 of them\n"
    "  --tokenizer WHAT     gpt2 (default; `lockstep data fetch gpt2-bpe` brings it), bytes, a\n"
    "                       .tiktoken or vocab.bpe file, or a folder with one\n"
    "  --documents BREAK    where a document ends: file (default), line, blank-line, or marker\n"
    "  --marker TEXT        what lies between documents in the text (default <|endoftext|>)\n"
    "  --field NAME         the field of JSON lines that is the text (default text)\n"
    "  --layout raw|llmc    bare tokens (default), or llm.c's header before them\n"
    "\n"
    "One end-of-text token goes between documents, if the tokenizer has one.\n"
    "\n"
    "Examples:\n"
    "  lockstep data tokenize shakespeare.txt -o train.bin\n"
    "  lockstep data tokenize part1.jsonl part2.jsonl --field body -o train.bin\n"
    "  lockstep data tokenize notes.txt --tokenizer bytes --documents blank-line -o notes.bin\n";

constexpr std::size_t kPartBytes = 4u << 20;

struct Options {
  bool help = false;
  std::vector<std::string> files;
  std::string output;
  std::string tokenizer = "gpt2";
  std::string documents = "file";
  std::string marker = "<|endoftext|>";
  std::string field = "text";
  std::string layout = "raw";
};

Options read_options(const std::vector<std::string>& arguments) {
  Options options;
  CLI::App app;
  app.set_help_flag();
  app.add_flag("-h,--help", options.help);
  app.add_option("files", options.files);
  app.add_option("-o,--output", options.output);
  app.add_option("--tokenizer", options.tokenizer);
  app.add_option("--documents", options.documents);
  app.add_option("--marker", options.marker);
  app.add_option("--field", options.field);
  app.add_option("--layout", options.layout);
  read_arguments(app, "data tokenize", arguments);
  if (options.help) return options;
  if (options.files.empty() || options.output.empty()) {
    throw UsageError(
        "name the text and where the tokens go: `lockstep data tokenize a.txt -o "
        "a.bin`");
  }
  return options;
}

std::unique_ptr<Tokenizer> open_named(const std::string& what) {
  if (what != "gpt2") return open_tokenizer(what);
  const auto folder = data_cache(Environment::of_process()) / "gpt2-bpe";
  if (!std::filesystem::exists(folder)) {
    throw UsageError(fmt::format(
        "GPT-2's table is not in {}; `lockstep data fetch gpt2-bpe` brings it, or name another "
        "with --tokenizer",
        folder.string()));
  }
  return open_tokenizer(folder);
}

// Feeds every document of every file to `use`.
template <typename Use>
void for_each_document(const Options& options, Use use) {
  const std::array breaks{DocumentBreak::whole_file, DocumentBreak::line, DocumentBreak::blank_line,
                          DocumentBreak::marker};
  const auto documents = breaks[read_choice("--documents", options.documents,
                                            {"file", "line", "blank-line", "marker"})];
  for (const auto& path : options.files) {
    const auto file = FileBytes::map(path);
    if (identify(file) == FileKind::jsonl) {
      const JsonlFile lines(file, {.field = options.field});
      for (std::uint64_t i = 0; i < lines.num_documents(); ++i) use(path, lines.document(i));
      continue;
    }
    const TextFile text(file, {.documents = documents, .marker = options.marker});
    for (std::uint64_t i = 0; i < text.num_documents(); ++i) use(path, text.document(i));
  }
}

}  // namespace

int run_data_tokenize(const std::vector<std::string>& arguments, Streams streams) {
  const auto options = read_options(arguments);
  if (options.help) {
    streams.out << kHelp;
    return kSuccess;
  }
  const bool llmc = read_choice("--layout", options.layout, {"raw", "llmc"}) == 1;
  const auto tokenizer = open_named(options.tokenizer);
  const bool wide = tokenizer->vocabulary_size() > 65536;
  TokenWriter writer(options.output, {.token_bytes = wide ? 4u : 2u, .llmc_header = llmc});
  std::uint64_t num_bytes = 0;
  std::uint64_t num_documents = 0;
  std::chrono::steady_clock::duration spent{};
  std::vector<Token> tokens;
  for_each_document(options, [&](const std::string& path, std::string_view text) {
    if (num_documents++ > 0 && tokenizer->end_of_text()) {
      writer.write(std::array{*tokenizer->end_of_text()});
    }
    // In parts, so that memory does not grow with the document.
    for (std::size_t at = 0; at < text.size();) {
      const auto part = text.substr(at, tokenizer->cut(text, at + kPartBytes) - at);
      const auto begin = std::chrono::steady_clock::now();
      try {
        tokenizer->encode(part, tokens);
      } catch (const UsageError& error) {
        throw UsageError(fmt::format("{}, document {}, from its byte {} on: {}", path,
                                     num_documents - 1, at, error.what()));
      }
      spent += std::chrono::steady_clock::now() - begin;
      writer.write(tokens);
      tokens.clear();
      at += part.size();
    }
    num_bytes += text.size();
  });
  const auto num_tokens = writer.num_tokens();
  writer.finish();
  const auto seconds = std::chrono::duration<double>(spent).count();
  streams.out << fmt::format(
      "{}: {} tokens ({}), documents: {}, bytes of text: {}; tokenized at {:.1f} MB/s; data id "
      "{:016x}\n",
      options.output, num_tokens, wide ? "uint32" : "uint16", num_documents, num_bytes,
      seconds > 0 ? static_cast<double>(num_bytes) / seconds / 1e6 : 0.0,
      FileBytes::map(options.output).data_id());
  return kSuccess;
}

}  // namespace lockstep::cli
