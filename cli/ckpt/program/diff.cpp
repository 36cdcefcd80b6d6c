// `lockstep ckpt diff`
#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <set>

#include "cli/arguments.h"
#include "cli/ckpt/program/checkpoint_paths.h"
#include "cli/ckpt/program/verbs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/loading.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kHelp =
    "lockstep ckpt diff A B: compare two checkpoints, tensor by tensor\n"
    "\n"
    "  A, B       the folder of a checkpoint, or of a run: its newest valid checkpoint\n"
    "  --json     print every difference as JSON\n"
    "\n"
    "Tensors are compared bit by bit. For each that differs, prints the number of\n"
    "elements that differ and the largest difference. Exit code: 0 if all tensors and\n"
    "states are bit-identical, 1 if not.\n"
    "\n"
    "Examples\n"
    "  lockstep ckpt diff runs/mine/best runs/mine/checkpoints/step-200\n"
    "  lockstep ckpt diff runs/uninterrupted runs/resumed\n";

struct Difference {
  std::string what;  // "model.safetensors: 0.weight", "state of sampler"
  std::string how;
};

std::string how_tensors_differ(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return fmt::format("{}{} and {}{}", c10::toString(a.scalar_type()),
                       fmt::format("{}", c10::str(a.sizes())), c10::toString(b.scalar_type()),
                       fmt::format("{}", c10::str(b.sizes())));
  }
  if (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) {
    return {};
  }
  const auto x = a.to(at::kDouble);
  const auto y = b.to(at::kDouble);
  return fmt::format("{} of {} elements differ, by at most {:.3g}",
                     x.ne(y).sum().item<std::int64_t>(), a.numel(),
                     x.sub(y).abs().max().item<double>());
}

std::set<std::string> names_of(const Manifest& manifest) {
  std::set<std::string> names;
  for (const auto& file : manifest.files) names.insert(file.name);
  return names;
}

void compare_files(FileSystem& files, const ValidCheckpoint& a, const ValidCheckpoint& b,
                   const std::string& name, std::vector<Difference>& found) {
  const SafetensorsFile left(files.read(a.path + "/" + name));
  const SafetensorsFile right(files.read(b.path + "/" + name));
  const std::set<std::string> ours(left.names().begin(), left.names().end());
  const std::set<std::string> theirs(right.names().begin(), right.names().end());
  for (const auto& tensor : ours) {
    if (!theirs.contains(tensor)) {
      found.push_back({name + ": " + tensor, "only in A"});
      continue;
    }
    const auto how = how_tensors_differ(read_tensor(left, tensor), read_tensor(right, tensor));
    if (!how.empty()) found.push_back({name + ": " + tensor, how});
  }
  for (const auto& tensor : theirs) {
    if (!ours.contains(tensor)) found.push_back({name + ": " + tensor, "only in B"});
  }
}

std::vector<Difference> compare(FileSystem& files, const ValidCheckpoint& a,
                                const ValidCheckpoint& b) {
  std::vector<Difference> found;
  auto states = a.manifest.states;
  for (const auto& [part, state] : b.manifest.states) states.try_emplace(part, "");
  for (const auto& [part, ignored] : states) {
    const auto x = a.manifest.states.find(part);
    const auto y = b.manifest.states.find(part);
    const auto words = [&](auto at, const auto& of) {
      return at == of.end() ? "none" : at->second;
    };
    const std::string left = words(x, a.manifest.states);
    const std::string right = words(y, b.manifest.states);
    if (left != right) found.push_back({"state of " + part, left + " and " + right});
  }
  const auto ours = names_of(a.manifest);
  const auto theirs = names_of(b.manifest);
  for (const auto& name : ours) {
    if (theirs.contains(name)) {
      compare_files(files, a, b, name, found);
    } else {
      found.push_back({name, "only in A"});
    }
  }
  for (const auto& name : theirs) {
    if (!ours.contains(name)) found.push_back({name, "only in B"});
  }
  return found;
}

}  // namespace

int run_diff(const std::vector<std::string>& arguments) {
  bool help = false;
  bool as_json = false;
  std::vector<std::string> paths;
  Arguments declared("ckpt diff", help);
  declared.flag("--json", as_json);
  declared.option("paths", paths);
  declared.read(arguments);
  if (help) {
    std::cout << kHelp;
    return 0;
  }
  if (paths.size() != 2) throw UsageError("expected two paths: of checkpoints or of runs");
  const auto files = local_file_system();
  const auto a = newest_valid_at(*files, paths[0]);
  const auto b = newest_valid_at(*files, paths[1]);
  const auto found = compare(*files, a, b);
  if (as_json) {
    json list = json::array();
    for (const auto& [what, how] : found) list.push_back({{"what", what}, {"how", how}});
    std::cout << json{{"a", a.path}, {"b", b.path}, {"differences", list}}.dump(1) << '\n';
    return found.empty() ? 0 : 1;
  }
  std::cout << fmt::format("A {} (step {})\nB {} (step {})\n", a.path, a.manifest.step, b.path,
                           b.manifest.step);
  for (const auto& [what, how] : found) std::cout << fmt::format("  {:<50} {}\n", what, how);
  std::cout << (found.empty() ? std::string("bit-identical\n")
                              : fmt::format("{} differences\n", found.size()));
  return found.empty() ? 0 : 1;
}

}  // namespace lockstep::cli
