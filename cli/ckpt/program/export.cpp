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
    "lockstep ckpt export PATH -o FILE: write a part of a checkpoint to a file\n"
    "\n"
    "  PATH               the folder of a checkpoint, or of a run: its newest valid one\n"
    "  -o, --output FILE  the file to create; an existing file is not overwritten\n"
    "  --part NAME        the part to write (default model)\n"
    "\n"
    "Python reads FILE with safetensors.torch.load_file; the names are those of\n"
    "state_dict.\n"
    "\n"
    "Examples\n"
    "  lockstep ckpt export runs/mine -o model.safetensors\n"
    "  lockstep ckpt export runs/mine/best --part optimizer -o adam.safetensors\n";

FileBytes part_of(FileSystem& files, const ValidCheckpoint& checkpoint, const std::string& part) {
  std::vector<std::string> parts;
  for (const auto& file : checkpoint.manifest.files) {
    if (file.name == part_file(part)) return files.read(checkpoint.path + "/" + file.name);
    if (!file.name.starts_with("rank-")) parts.push_back(file.name.substr(0, file.name.rfind('.')));
  }
  throw UsageError(fmt::format("{} has no part called {} with tensors; it has {}", checkpoint.path,
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
    throw UsageError("name a checkpoint and a file to create: runs/mine -o model.safetensors");
  }
  const auto files = local_file_system();
  const auto checkpoint = newest_valid_at(*files, path);
  const SafetensorsFile file(part_of(*files, checkpoint, part));
  // The data already has the layout, so only the header is new: with the metadata that Python tools
  // expect.
  const auto layout = lay_out_safetensors(file.header().entries, {{"format", "pt"}});
  if (layout.entries != file.header().entries) {
    throw UsageError(fmt::format("{} does not have the layout of a lockstep file; copy it instead",
                                 file.file().name()));
  }
  const auto data = file.file().bytes().subspan(file.header().data_offset);
  const std::array<std::span<const std::byte>, 2> pieces{layout.head, data};
  const auto target = std::filesystem::path(output);
  const auto folder = target.has_parent_path() ? target.parent_path().string() : std::string(".");
  const auto record = write_durably(*files, folder, target.filename(), pieces);
  files->sync_folder(folder);
  std::cout << fmt::format("{}: {} of step {}, {} tensors, {}\n", output, part,
                           checkpoint.manifest.step, layout.entries.size(),
                           size_words(record.bytes));
  return 0;
}

}  // namespace lockstep::cli
