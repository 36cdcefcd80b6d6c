// `lockstep ckpt verify`
#include <fmt/format.h>

#include <iostream>

#include "cli/ckpt/program/checkpoint_paths.h"
#include "cli/ckpt/program/verbs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/formats/safetensors_file.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep ckpt verify PATH: read every byte and compare it with the manifest\n"
    "\n"
    "  PATH       the folder of a run (all its checkpoints) or of one checkpoint\n"
    "  --json     print JSON\n"
    "\n"
    "Exit code: 0 if every checkpoint is valid, 1 if not.\n"
    "\n"
    "Examples\n"
    "  lockstep ckpt verify runs/mine\n"
    "  lockstep ckpt verify runs/mine/checkpoints/step-200\n";

// The fault of the checkpoint at `path`; empty when it is valid.
std::string fault_of(FileSystem& files, const std::string& path) {
  try {
    const auto checkpoint = verify_checkpoint(files, path);
    for (const auto& record : checkpoint.manifest.files) {
      (void)SafetensorsFile(files.read(path + "/" + record.name));
    }
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

int run_verify(const std::vector<std::string>& arguments) {
  const auto [help, as_json, path] = read_path_arguments("ckpt verify", arguments);
  if (help) {
    std::cout << kHelp;
    return 0;
  }
  const auto files = local_file_system();
  const auto found = find_checkpoints(*files, path);
  auto list = nlohmann::json::array();
  std::size_t num_valid = 0;
  for (const auto& checkpoint : found.paths) {
    const auto fault = fault_of(*files, checkpoint);
    if (fault.empty()) ++num_valid;
    list.push_back({{"path", checkpoint}, {"valid", fault.empty()}, {"fault", fault}});
    if (as_json) continue;
    std::cout << (fault.empty() ? fmt::format("valid    {}\n", checkpoint)
                                : fmt::format("INVALID  {}: {}\n", checkpoint, fault));
  }
  if (as_json) {
    std::cout << list.dump(1) << '\n';
  } else {
    std::cout << fmt::format("{} of {} valid\n", num_valid, found.paths.size());
  }
  return num_valid == found.paths.size() ? 0 : 1;
}

}  // namespace lockstep::cli
