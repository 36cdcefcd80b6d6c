// `lockstep data inspect FILE…`
#include <fmt/format.h>

#include <array>

#include "cli/arguments.h"
#include "cli/data/file_report.h"
#include "cli/data/verbs.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep data inspect FILE…: print format, samples and data id of files\n"
    "\n"
    "  --as KIND          format: idx, npy, npz, safetensors, llmc, uint16, uint32,\n"
    "                     cifar, csv, jsonl or text (default: from contents and name)\n"
    "  --samples N        number of samples to print; 0: none (default 3)\n"
    "  --tokenizer NAME   print tokens as text: bytes, a .tiktoken or vocab.bpe file,\n"
    "                     or its folder (default: print numbers)\n"
    "\n"
    "Examples\n"
    "  lockstep data inspect train.bin --tokenizer ~/.cache/lockstep/data/gpt2-bpe\n"
    "  lockstep data inspect t10k-labels-idx1-ubyte.gz features.npz\n"
    "  lockstep data inspect tokens.dat --as uint32\n";

struct Kind {
  std::string_view word;
  FileKind kind;
};
constexpr std::array<Kind, 11> kKinds{{{"idx", FileKind::idx},
                                       {"npy", FileKind::npy},
                                       {"npz", FileKind::npz},
                                       {"safetensors", FileKind::safetensors},
                                       {"llmc", FileKind::llmc_tokens},
                                       {"uint16", FileKind::raw_tokens},
                                       {"uint32", FileKind::raw_tokens},
                                       {"cifar", FileKind::cifar},
                                       {"csv", FileKind::csv},
                                       {"jsonl", FileKind::jsonl},
                                       {"text", FileKind::text}}};

}  // namespace

int run_data_inspect(const std::vector<std::string>& arguments, Streams streams) {
  bool help = false;
  std::vector<std::string> files;
  std::string as;
  std::string tokenizer_name;
  ReportOptions options;
  Arguments declared("data inspect", help);
  declared.option("files", files);
  declared.option("--as", as);
  declared.option("--samples", options.num_samples);
  declared.option("--tokenizer", tokenizer_name);
  declared.read(arguments);
  if (help) {
    streams.out << kHelp;
    return kSuccess;
  }
  if (files.empty()) {
    throw UsageError("no file is given: `lockstep data inspect train.bin`");
  }
  if (!as.empty()) {
    std::vector<std::string_view> words;
    for (const auto& kind : kKinds) words.push_back(kind.word);
    options.kind = kKinds[read_choice("--as", as, words)].kind;
    options.tokens_of_4_bytes = as == "uint32";
  }
  std::unique_ptr<Tokenizer> tokenizer;
  if (!tokenizer_name.empty()) tokenizer = open_tokenizer(tokenizer_name);
  options.tokenizer = tokenizer.get();
  int code = kSuccess;
  for (const auto& path : files) {
    try {
      streams.out << file_report(FileBytes::map(path), options);
    } catch (const Error& error) {  // continue with the other files
      streams.error << "lockstep data inspect: " << error.what() << '\n';
      code = kFailure;
    }
  }
  return code;
}

}  // namespace lockstep::cli
