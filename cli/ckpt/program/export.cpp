// `lockstep ckpt export`
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>

#include "cli/arguments.h"
#include "cli/ckpt/program/checkpoint_paths.h"
#include "cli/ckpt/program/verbs.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/safetensors_layout.h"
#include "lockstep/formats/safetensors_file.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep ckpt export PATH -o FILE: one part of a checkpoint as a plain .safetensors file\n"
    "\n"
    "  PATH            the folder of a checkpoint, or of a run: its newest valid one\n"
    "  -o FILE         the file to make; one that is there is not overwritten\n"
    "  --part NAME     which part (default: model)\n"
    "\n"
    "Python reads it with safetensors.torch.load_file(FILE), names as in state_dict.\n"
    "\n"
    "Examples:\n"
    "  lockstep ckpt export runs/mine -o model.safetensors\n"
    "  lockstep ckpt export runs/mine/checkpoints/step-200 --part optimizer -o adam.safetensors\n";

FileBytes part_of(FileSystem& files, const ValidCheckpoint& checkpoint, const std::string& part) {
  std::vector<std::string> parts;
  for (const auto& file : checkpoint.manifest.files) {
    if (file.name == part_file(part)) return files.read(checkpoint.path + "/" + file.name);
    if (!file.name.starts_with("rank-")) parts.push_back(file.name.substr(0, file.name.rfind('.')));
  }
  throw UsageError(fmt::format("{} has no tensors of a part called {}; it has {}", checkpoint.path,
                               part, fmt::join(parts, ", ")));
}

}  // namespace

int run_export(const std::vector<std::string>& arguments) {
  bool help = false;
  std::string path;
  std::string output;
  std::string part = "model";
  Arguments declared("ckpt export", help);
  declared.option("path", path);
  declared.option("-o,--output", output);
  declared.option("--part", part);
  declared.read(arguments);
  if (help) {
    std::cout << kHelp;
    return 0;
  }
  if (path.empty() || output.empty()) {
    throw UsageError("name a checkpoint and the file to make: runs/mine -o model.safetensors");
  }
  const auto files = local_file_system();
  const auto checkpoint = newest_valid_at(*files, path);
  const SafetensorsFile file(part_of(*files, checkpoint, part));
  // The data lies as the layout would put it, so only the header is made anew: with the word that
  // tools of Python look for.
  const auto layout = lay_out_safetensors(file.header().entries, {{"format", "pt"}});
  if (layout.entries != file.header().entries) {
    throw UsageError(
        fmt::format("{} was not laid out by lockstep; copy it as it is", file.file().name()));
  }
  const auto data = file.file().bytes().subspan(file.header().data_offset);
  const std::array<std::span<const std::byte>, 2> pieces{layout.head, data};
  const auto place = std::filesystem::path(output);
  const auto folder = place.has_parent_path() ? place.parent_path().string() : std::string(".");
  const auto record = write_durably(*files, folder, place.filename(), pieces);
  files->sync_folder(folder);
  std::cout << fmt::format("{}: {} of step {}, {} tensors, {}\n", output, part,
                           checkpoint.manifest.step, layout.entries.size(),
                           size_words(record.bytes));
  return 0;
}

}  // namespace lockstep::cli
