// `lockstep ckpt inspect`
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <set>

#include "cli/ckpt/program/checkpoint_paths.h"
#include "cli/ckpt/program/verbs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/formats/safetensors_file.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kHelp =
    "lockstep ckpt inspect PATH: list the checkpoints of a run, or what one contains\n"
    "\n"
    "  PATH       the folder of a run: one line per checkpoint\n"
    "             the folder of one checkpoint, or the name of a kept one\n"
    "             (runs/mine/best): its manifest and every tensor\n"
    "  --json     print JSON\n"
    "\n"
    "Reads only manifests and headers; `lockstep ckpt verify` reads every byte.\n"
    "\n"
    "Examples\n"
    "  lockstep ckpt inspect runs/mine\n"
    "  lockstep ckpt inspect runs/mine/checkpoints/step-200 --json\n";

std::uint64_t bytes_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const auto& file : manifest.files) bytes += file.bytes;
  return bytes;
}

json facts_of(const Manifest& manifest) {
  json states = json::object();
  for (const auto& [part, state] : manifest.states) states[part] = json::parse(state);
  return {{"step", manifest.step},
          {"world", manifest.world},
          {"threads", manifest.threads},
          {"seed", manifest.seed},
          {"data_id", fmt::format("{:016x}", manifest.data_id)},
          {"failures", manifest.failures},
          {"reason", to_string(manifest.reason)},
          {"kept_as", manifest.kept_as},
          {"lockstep", manifest.lockstep_version},
          {"bytes", bytes_of(manifest)},
          {"configuration", json::parse(manifest.configuration)},
          {"states", states}};
}

int inspect_run(FileSystem& files, const CheckpointPaths& found, bool as_json) {
  json list = json::array();
  std::set<std::string> taken;  // names of newer checkpoints, which are listed first
  if (!as_json) std::cout << "      step  world  failures  reason          size  files  kept as\n";
  for (const auto& path : found.paths) {
    try {
      const auto manifest = read_manifest(files, path).manifest;
      auto facts = facts_of(manifest);
      facts["path"] = path;
      list.push_back(facts);
      if (as_json) continue;
      std::vector<std::string> names;
      std::copy_if(manifest.kept_as.begin(), manifest.kept_as.end(), std::back_inserter(names),
                   [&](const std::string& name) { return taken.insert(name).second; });
      std::cout << fmt::format("{:>10}  {:>5}  {:>8}  {:<8}  {:>10}  {:>5}  {}\n", manifest.step,
                               manifest.world, manifest.failures, to_string(manifest.reason),
                               size_words(bytes_of(manifest)), manifest.files.size(),
                               fmt::join(names, ", "));
    } catch (const Error& error) {
      list.push_back({{"path", path}, {"error", error.what()}});
      if (!as_json) std::cout << fmt::format("INVALID: {}\n", error.what());
    }
  }
  if (as_json) std::cout << list.dump(1) << '\n';
  return 0;
}

json tensors_of(FileSystem& files, const ValidCheckpoint& checkpoint, bool as_json) {
  json list = json::array();
  for (const auto& record : checkpoint.manifest.files) {
    const SafetensorsFile file(files.read(checkpoint.path + "/" + record.name));
    if (!as_json) {
      std::cout << fmt::format("\n{} ({}, digest {:016x})\n", record.name, size_words(record.bytes),
                               record.digest);
    }
    for (const auto& entry : file.header().entries) {
      list.push_back({{"file", record.name},
                      {"name", entry.name},
                      {"dtype", safetensors_dtype_name(entry.dtype)},
                      {"shape", entry.shape},
                      {"bytes", entry.end - entry.begin}});
      if (as_json) continue;
      std::cout << fmt::format(
          "  {:<44} {:>5} {:<22} {:>10}\n", entry.name, safetensors_dtype_name(entry.dtype),
          fmt::format("[{}]", fmt::join(entry.shape, ", ")), size_words(entry.end - entry.begin));
    }
  }
  return list;
}

int inspect_one(FileSystem& files, const std::string& path, bool as_json) {
  const auto checkpoint = read_manifest(files, path);
  auto facts = facts_of(checkpoint.manifest);
  facts["path"] = path;
  if (!as_json) {
    for (const auto* name : {"step", "reason", "kept_as", "world", "threads", "seed", "data_id",
                             "failures", "lockstep", "configuration"}) {
      std::cout << fmt::format(
          "{:<14} {}\n", name,
          facts[name].is_string() ? facts[name].get<std::string>() : facts[name].dump());
    }
    for (const auto& [part, state] : checkpoint.manifest.states) {
      std::cout << fmt::format("{:<14} {} {}\n", "state of", part, state);
    }
  }
  facts["tensors"] = tensors_of(files, checkpoint, as_json);
  if (as_json) std::cout << facts.dump(1) << '\n';
  return 0;
}

}  // namespace

int run_inspect(const std::vector<std::string>& arguments) {
  const auto [help, as_json, path] = read_path_arguments("ckpt inspect", arguments);
  if (help) {
    std::cout << kHelp;
    return 0;
  }
  const auto files = local_file_system();
  const auto found = find_checkpoints(*files, path);
  return found.is_one ? inspect_one(*files, found.paths.front(), as_json)
                      : inspect_run(*files, found, as_json);
}

}  // namespace lockstep::cli
