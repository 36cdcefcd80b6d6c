#include "cli/train/data_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/data/fetch.h"
#include "cli/data/tokenize.h"
#include "cli/nearest.h"
#include "lockstep/base/error.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/formats/token_file.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeaders = "headers";  // the name of LibTorch's headers as a text

const FetchRecipe* try_recipe(std::string_view name) {
  const auto all = fetch_recipes();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const FetchRecipe& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

fs::path fetched(const FetchRecipe& recipe, const DataOptions& options,
                 const Environment& environment) {
  return fetch(recipe, fetch_options(environment), options.run);
}

// The files that the user named.
std::vector<std::string> named_files(const std::string& names) {
  std::vector<std::string> files;
  for (std::size_t begin = 0; begin <= names.size();) {
    const auto end = std::min(names.find(',', begin), names.size());
    const auto path = names.substr(begin, end - begin);
    if (!fs::is_regular_file(path)) {
      std::vector<std::string_view> known{kHeaders};
      for (const auto& recipe : fetch_recipes()) known.push_back(recipe.name);
      const auto nearest = try_nearest(path, known);
      throw UsageError(fmt::format(
          "--data {}: no such file, and no data set of that name{}; `lockstep data fetch --help` "
          "lists the data sets",
          path, nearest ? fmt::format(" (did you mean {}?)", *nearest) : ""));
    }
    files.push_back(fs::absolute(path));
    begin = end + 1;
  }
  return files;
}

// LibTorch's hand-written headers, concatenated in the order of their paths: the bytes are the same
// in the wheels of all Linux machines.
std::string concatenate_headers(const DataOptions& options) {
  const fs::path root = options.torch_include;
  std::vector<std::string> paths;
  for (const auto* part : {"c10", "torch"}) {
    if (!fs::is_directory(root / part)) {
      throw UsageError(fmt::format(
          "LibTorch's headers are no longer in {}: name a text with --data FILE, or build lockstep "
          "again",
          root.string()));
    }
    for (const auto& entry : fs::recursive_directory_iterator(root / part)) {
      if (entry.path().extension() == ".h") paths.push_back(entry.path().lexically_relative(root));
    }
  }
  std::sort(paths.begin(), paths.end());
  const std::string target = fs::path(options.run_folder) / "headers.txt";
  std::ofstream out(target, std::ios::binary);
  for (const auto& path : paths) out << std::ifstream(root / path, std::ios::binary).rdbuf();
  if (!out.flush()) throw UsageError(fmt::format("cannot write {}: is the disk full?", target));
  return target;
}

struct Text {
  std::string name;
  std::vector<std::string> files;
  std::string remark = {};
};

Text headers(const DataOptions& options) {
  return {"LibTorch's headers", {concatenate_headers(options)}};
}

// The text that replaces the default text, whose download failed with `error`.
Text instead_of_default(const UsageError& error, const DataOptions& options) {
  if (options.has_terminal) {
    throw UsageError(
        fmt::format("the default text, Shakespeare, is not available: {}.\n"
                    "Choose the text to train on:\n"
                    "  {} --data FILE       # a text file of yours\n"
                    "  {} --data headers    # LibTorch's C++ headers, which are on this machine",
                    error.what(), options.command, options.command));
  }
  auto text = headers(options);
  text.remark = fmt::format(
      "this run trains on LibTorch's C++ headers, not on the default text, Shakespeare: "
      "{}. To choose the text, start another run with --data FILE or --data headers.",
      error.what());
  return text;
}

Text find_text(const TrainConfig& config, const DataOptions& options,
               const Environment& environment) {
  if (config.data == kHeaders) return headers(options);
  const auto* recipe = try_recipe(config.data == "auto" ? "shakespeare" : config.data);
  if (recipe == nullptr) return {config.data, named_files(config.data)};
  if (!recipe->join) {
    throw UsageError(fmt::format("--data {} is not text: use shakespeare, sotu, headers or a file",
                                 config.data));
  }
  try {
    const auto folder = fetched(*recipe, options, environment);
    return {std::string(recipe->name), {folder / recipe->files.front().name}};
  } catch (const UsageError& error) {
    if (config.data != "auto") throw;
    return instead_of_default(error, options);
  }
}

// Checks all tokens now: an invalid one would end training later.
void expect_tokens_below(const std::string& path, std::int64_t vocabulary) {
  if (path.ends_with(".u32")) {
    throw UsageError(fmt::format(
        "--data {}: a raw file does not contain the width of its tokens; create the file with "
        "`lockstep data tokenize --layout llmc`",
        path));
  }
  const TokenFile file(FileBytes::map(path));
  std::vector<std::int64_t> part;
  for (std::uint64_t at = 0; at < file.num_tokens(); at += part.size()) {
    part.resize(std::min<std::uint64_t>(file.num_tokens() - at, 1u << 20));
    file.read(at, part);
    const auto largest = *std::max_element(part.begin(), part.end());
    if (largest < vocabulary) continue;
    throw UsageError(
        fmt::format("--data {} has the token {}, but the tokenizer's vocabulary is {}: name the "
                    "tokenizer of the file, for example --tokenizer gpt2",
                    path, largest, vocabulary));
  }
}

DataFiles token_files(const TrainConfig& config, const DataOptions& options,
                      const Environment& environment) {
  auto text = find_text(config, options, environment);
  const auto where = tokenizer_path(config.tokenizer, environment);
  const auto tokenizer = open_tokenizer(where);
  DataFiles files{.name = text.name,
                  .tokenizer = where == "bytes" ? where : std::string(fs::absolute(where)),
                  .vocabulary = tokenizer->vocabulary_size(),
                  .remark = std::move(text.remark)};
  const auto kind = identify(FileBytes::map(text.files.front()));
  if (kind == FileKind::llmc_tokens || kind == FileKind::raw_tokens) {
    if (text.files.size() > 1) {
      throw UsageError("--data names several token files: concatenate them into one");
    }
    expect_tokens_below(text.files.front(), files.vocabulary);
    files.training = std::move(text.files);
    return files;
  }
  constexpr auto tokens = "tokens.bin";
  // A raw file does not contain the width of its tokens; llm.c's header does.
  const bool is_wide = files.vocabulary > 65536;
  tokenize(text.files, *tokenizer, fs::path(options.run_folder) / tokens, {.llmc_header = is_wide});
  files.training = {tokens};
  return files;
}

// Fashion-MNIST's four files, or the files that the user named.
DataFiles sample_files(const TrainConfig& config, const DataOptions& options,
                       const Environment& environment) {
  const auto* recipe = try_recipe(config.data == "auto" ? "fashion-mnist" : config.data);
  if (recipe == nullptr && config.data != kHeaders) {
    return {.name = config.data, .training = named_files(config.data)};
  }
  if (recipe == nullptr || recipe->name != "fashion-mnist") {
    throw UsageError(
        fmt::format("--data {} has no images: use fashion-mnist, or files", config.data));
  }
  const auto folder = fetched(*recipe, options, environment);
  const auto file = [&](std::size_t index) -> std::string {
    return folder / recipe->files[index].name;
  };
  return {
      .name = "fashion-mnist", .training = {file(0), file(1)}, .validation = {file(2), file(3)}};
}

}  // namespace

DataFiles prepare_data(const TrainConfig& config, const DataOptions& options,
                       const Environment& environment) {
  return trains_on_tokens(config.model) ? token_files(config, options, environment)
                                        : sample_files(config, options, environment);
}

}  // namespace lockstep::cli
