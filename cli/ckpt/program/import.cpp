// `lockstep ckpt import`
#include <fmt/format.h>

#include <array>
#include <iostream>

#include "cli/arguments.h"
#include "cli/ckpt/program/checkpoint_paths.h"
#include "cli/ckpt/program/verbs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/formats/safetensors_file.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep ckpt import FILE --to RUN: start a run from a .safetensors file\n"
    "\n"
    "  FILE            for example from Python's safetensors.torch.save_file\n"
    "  --to RUN        the folder of the run; it must not have a checkpoint\n"
    "  --part NAME     the part of the run that the file contains (default model)\n"
    "\n"
    "The file becomes the checkpoint of step 0. The run loads this part from it; the\n"
    "name, shape and dtype of each tensor must match. All other parts start as the\n"
    "program creates them. Pickle files are not read.\n"
    "\n"
    "Examples\n"
    "  lockstep ckpt import pretrained.safetensors --to runs/finetune\n";

}  // namespace

int run_import(const std::vector<std::string>& arguments) {
  bool help = false;
  std::string path;
  std::string run;
  std::string part = "model";
  Arguments declared("ckpt import", help);
  declared.option("file", path);
  declared.option("--to", run);
  declared.option("--part", part);
  declared.read(arguments);
  if (help) {
    std::cout << kHelp;
    return 0;
  }
  if (path.empty() || run.empty()) {
    throw UsageError("name a file and a run: model.safetensors --to runs/mine");
  }
  if (!is_part_name(part) || part.starts_with("rank-")) {
    throw UsageError(fmt::format("--part is \"{}\", expected letters, digits, _ and -", part));
  }
  const auto files = local_file_system();
  const auto folder = run + "/checkpoints";
  if (const auto steps = list_steps(*files, folder); !steps.empty()) {
    throw UsageError(fmt::format("{} already has a checkpoint of step {}; import into a new run",
                                 run, steps.front()));
  }
  const SafetensorsFile file(files->read(path));  // throws for other formats
  make_folders(*files, folder);
  const auto lock = files->try_lock(folder);
  if (!lock.held) {
    throw UsageError(
        fmt::format("a run is using {} ({}); import into a new run", folder, lock.owner));
  }
  const auto temporary = temporary_path(folder, 0, "import");
  remove_quietly(*files, temporary);  // left by an interrupted import
  files->make_folder(temporary);
  const std::array<std::span<const std::byte>, 1> pieces{file.file().bytes()};
  Manifest manifest{.lockstep_version = kVersion, .reason = SaveReason::import};
  manifest.files.push_back(write_durably(*files, temporary, part_file(part), pieces));
  commit(*files, folder, "import", manifest);
  std::cout << fmt::format("{}/step-0: {} with {} tensors, {}\n", folder, part, file.names().size(),
                           size_words(manifest.files.front().bytes));
  return 0;
}

}  // namespace lockstep::cli
