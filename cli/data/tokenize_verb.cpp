// `lockstep data tokenize FILE… -o OUT.bin`
#include <fmt/format.h>

#include <array>
#include <chrono>

#include "cli/arguments.h"
#include "cli/data/tokenize.h"
#include "cli/data/verbs.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep data tokenize FILE… -o OUT.bin: convert text or JSON lines to tokens\n"
    "\n"
    "  -o, --output FILE   token file: uint16, or uint32 for a vocabulary above 65536\n"
    "  --tokenizer NAME    gpt2 (from `lockstep data fetch gpt2-bpe`), bytes, a\n"
    "                      .tiktoken or vocab.bpe file, or its folder (default gpt2)\n"
    "  --documents WORD    what separates documents: file, line, blank-line or marker\n"
    "                      (default file)\n"
    "  --marker TEXT       text between documents, with --documents marker\n"
    "                      (default <|endoftext|>)\n"
    "  --field NAME        field of JSON lines with the text (default text)\n"
    "  --layout WORD       raw (only tokens) or llmc (with llm.c's header)\n"
    "                      (default raw)\n"
    "\n"
    "Writes one end-of-text token between documents, if the tokenizer has one.\n"
    "\n"
    "Examples\n"
    "  lockstep data tokenize shakespeare.txt -o train.bin\n"
    "  lockstep data tokenize part1.jsonl part2.jsonl --field body -o train.bin\n"
    "  lockstep data tokenize a.txt --tokenizer bytes --documents line -o a.bin\n";

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
  Arguments declared("data tokenize", options.help);
  declared.option("files", options.files);
  declared.option("-o,--output", options.output);
  declared.option("--tokenizer", options.tokenizer);
  declared.option("--documents", options.documents);
  declared.option("--marker", options.marker);
  declared.option("--field", options.field);
  declared.option("--layout", options.layout);
  declared.read(arguments);
  if (options.help) return options;
  if (options.files.empty() || options.output.empty()) {
    throw UsageError("name text files and the token file: `lockstep data tokenize a.txt -o a.bin`");
  }
  return options;
}

DocumentBreak read_break(const std::string& word) {
  const std::array breaks{DocumentBreak::whole_file, DocumentBreak::line, DocumentBreak::blank_line,
                          DocumentBreak::marker};
  return breaks[read_choice("--documents", word, {"file", "line", "blank-line", "marker"})];
}

}  // namespace

int run_data_tokenize(const std::vector<std::string>& arguments, Streams streams) {
  const auto options = read_options(arguments);
  if (options.help) {
    streams.out << kHelp;
    return kSuccess;
  }
  const bool llmc = read_choice("--layout", options.layout, {"raw", "llmc"}) == 1;
  const auto tokenizer =
      open_tokenizer(tokenizer_path(options.tokenizer, Environment::of_process()));
  const auto done =
      tokenize(options.files, *tokenizer, options.output,
               {.text = {.documents = read_break(options.documents), .marker = options.marker},
                .field = options.field,
                .llmc_header = llmc});
  const auto seconds = std::chrono::duration<double>(done.spent).count();
  streams.out << fmt::format(
      "{}: {} tokens ({}), documents: {}, bytes of text: {}; tokenized at {:.1f} MB/s; data id "
      "{:016x}\n",
      options.output, done.num_tokens, done.token_bytes == 4 ? "uint32" : "uint16",
      done.num_documents, done.num_bytes,
      seconds > 0 ? static_cast<double>(done.num_bytes) / seconds / 1e6 : 0.0,
      FileBytes::map(options.output).data_id());
  return kSuccess;
}

}  // namespace lockstep::cli
