#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/checkpoint/loading.h"
#include "lockstep/checkpoint/old_part_names.h"
#include "lockstep/checkpoint/resuming_internal.h"
#include "lockstep/checkpoint/shared_check_internal.h"
#include "lockstep/collectives/gather_values.h"

namespace lockstep {
namespace {

// The newest step that is at most `bound` and can be opened; the bytes of its files are not
// checked. Others are logged and removed from `steps`.
std::optional<ValidCheckpoint> newest_opened(FileSystem& files, const std::string& folder,
                                             std::vector<std::int64_t>& steps, std::int64_t bound,
                                             const Log& log) {
  while (!steps.empty()) {
    const auto step = steps.front();
    if (step <= bound) {
      try {
        return open_step(files, folder, step);
      } catch (const Error& error) {
        log.warning(fmt::format("skipped the checkpoint of step {}: {}", step, error.what()));
      }
    } else {
      log.warning(
          fmt::format("skipped the checkpoint of step {}: it is not valid on every rank", step));
    }
    steps.erase(steps.begin());
  }
  return std::nullopt;
}

std::vector<Proposal> gather(const Proposal& own, const ProcessGroup& group) {
  const std::array<std::int64_t, 3> numbers{
      own.step, static_cast<std::int64_t>(own.manifest_digest), own.num_steps};
  std::vector<Proposal> proposals;
  for (const auto& each : gather_values(group, std::span<const std::int64_t>(numbers),
                                        {.name = "newest checkpoint"})) {
    proposals.push_back({each[0], static_cast<std::uint64_t>(each[1]), each[2]});
  }
  return proposals;
}

bool has_file(const Manifest& manifest, const std::string& name) {
  return std::ranges::find(manifest.files, name, &FileRecord::name) != manifest.files.end();
}

// The parts that a checkpoint contains.
std::set<std::string> saved_parts(const Manifest& manifest) {
  std::set<std::string> names;
  for (const auto& [name, state] : manifest.states) names.insert(name);
  for (const auto& file : manifest.files) {
    if (!file.name.starts_with("rank-")) names.insert(file.name.substr(0, file.name.rfind('.')));
  }
  return names;
}

class PartLoader {
 public:
  PartLoader(FileSystem& files, const ValidCheckpoint& checkpoint, const Parts& parts,
             const Log& log)
      : files_(files), checkpoint_(checkpoint), parts_(parts), log_(log) {}

  // Collects parts that only the program or only the checkpoint has. An import may lack parts.
  void match_parts() {
    auto saved = saved_parts(checkpoint_.manifest);
    std::set<std::string> tracked;
    for (const auto& [name, thing] : parts_) {
      if (!thing->is_per_rank()) tracked.insert(name);
    }
    old_names_ = old_part_names(saved, tracked);
    for (const auto& [name, thing] : parts_) {
      if (thing->is_per_rank() || saved.erase(saved_name(name)) > 0) continue;
      if (checkpoint_.manifest.reason != SaveReason::import) {
        faults_.push_back(fmt::format("{} is tracked but not in the checkpoint", name));
      } else {
        log_.warning(
            fmt::format("{} is not in the import {} and is not loaded", name, checkpoint_.path));
        left_.insert(name);
      }
    }
    for (const auto& name : saved) {
      faults_.push_back(fmt::format("{} is in the checkpoint but not tracked", name));
    }
    throw_faults();
  }

  void load_states() {
    for (const auto& [name, thing] : parts_) {
      const auto state = checkpoint_.manifest.states.find(saved_name(name));
      if (state == checkpoint_.manifest.states.end()) continue;
      try {
        thing->load_state_json(state->second);
      } catch (const Error& error) {
        throw UsageError(
            fmt::format("{} does not match {}: {}", checkpoint_.path, name, error.what()));
      }
    }
  }

  void open_replicated() {
    for (const auto& [name, thing] : parts_) {
      if (thing->is_per_rank() || left_.contains(name)) continue;
      auto tensors = thing->named_tensors();
      loaded_.emplace_back(thing.get(), tensors);
      open(name, part_file(saved_name(name)), std::move(tensors), thing->sharded_tensors());
    }
  }

  // One file holds all per-rank tensors of a rank, under <part>.<name>.
  void open_own(int rank) {
    NamedTensors tensors;
    for (const auto& [name, thing] : parts_) {
      auto own = own_tensors(*thing);
      for (const auto& [tensor_name, tensor] : own) {
        tensors.emplace_back(fmt::format("{}.{}", saved_name(name), tensor_name), tensor);
      }
      if (thing->is_per_rank()) loaded_.emplace_back(thing.get(), std::move(own));
    }
    open(fmt::format("rank {}", rank), rank_file(rank), std::move(tensors));
  }

  // In a world of another size: the tensors of saved ranks rank, rank + world and so on are added,
  // so that each saved rank counts once. Returns the parts that have such tensors.
  std::vector<std::string> open_summed(int rank, int world) {
    std::vector<std::string> names;
    for (const auto& [name, thing] : parts_) {
      if (thing->is_per_rank() || left_.contains(name)) continue;
      const auto tensors = thing->rank_tensors();
      if (!tensors.empty()) names.push_back(name);
      for (const auto& [tensor_name, tensor] : tensors) {
        summed_.push_back({tensor, fmt::format("{}.{}", saved_name(name), tensor_name)});
      }
    }
    if (summed_.empty()) return names;
    for (auto saved = rank; saved < checkpoint_.manifest.world; saved += world) {
      const auto file = rank_file(saved);
      if (has_file(checkpoint_.manifest, file)) {
        add_terms(SafetensorsFile(files_.read(checkpoint_.path + "/" + file)), saved);
      } else {
        faults_.push_back(fmt::format("the checkpoint has no file {}", file));
      }
    }
    return names;
  }

  void load_tensors() {
    throw_faults();
    for (const auto& [file, tensors, sharded] : opened_) {
      copy_into(tensors, file);
      copy_into(sharded, file);
    }
    for (const auto& [thing, tensors] : loaded_) thing->load_tensors(tensors);
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, name, terms] : summed_) {
      tensor.zero_();
      for (const auto& term : terms) tensor.add_(term.to(tensor.device()));
    }
  }

 private:
  // The name in this checkpoint of the part that is tracked as `name`.
  [[nodiscard]] const std::string& saved_name(const std::string& name) const {
    const auto old = old_names_.find(name);
    return old == old_names_.end() ? name : old->second;
  }

  void open(const std::string& part, const std::string& name, NamedTensors tensors,
            ShardedTensors sharded = {}) {
    if (!has_file(checkpoint_.manifest, name)) {
      if (!tensors.empty() || !sharded.empty())
        faults_.push_back(
            fmt::format("{} has tensors in this run and none in the checkpoint", part));
      return;
    }
    SafetensorsFile file(files_.read(checkpoint_.path + "/" + name));
    for (const auto& clause : differences(file, tensors, sharded)) {
      faults_.push_back(fmt::format("{}: {}", part, clause));
    }
    opened_.push_back({std::move(file), std::move(tensors), std::move(sharded)});
  }

  void add_terms(const SafetensorsFile& file, int rank) {
    for (auto& [tensor, name, terms] : summed_) {
      try {
        auto term = read_tensor(file, name);
        if (term.sizes() == tensor.sizes() && term.scalar_type() == tensor.scalar_type()) {
          terms.push_back(std::move(term));
        } else {
          faults_.push_back(
              fmt::format("rank {}: {} has another shape or dtype in the checkpoint", rank, name));
        }
      } catch (const UsageError&) {
        faults_.push_back(fmt::format("rank {}: {} is missing in the checkpoint", rank, name));
      }
    }
  }

  void throw_faults() const {
    if (faults_.empty()) return;
    throw UsageError(
        fmt::format("{} does not match this program: {}; construct the tracked objects as in the "
                    "run that saved them, or use another folder",
                    checkpoint_.path, fmt::join(faults_, "; ")));
  }

  FileSystem& files_;
  const ValidCheckpoint& checkpoint_;
  const Parts& parts_;
  const Log& log_;
  std::map<std::string, std::string> old_names_;
  std::vector<std::string> faults_;
  std::set<std::string> left_;  // parts that an import lacks
  struct Opened {
    SafetensorsFile file;
    NamedTensors tensors;
    ShardedTensors sharded;
  };
  std::vector<Opened> opened_;
  std::vector<std::pair<Tracked*, NamedTensors>> loaded_;  // named_tensors() of each object
  struct Sum {
    at::Tensor tensor;
    std::string name = {};  // in the rank files
    std::vector<at::Tensor> terms = {};
  };
  std::vector<Sum> summed_;
};

void derive_own(const ValidCheckpoint& checkpoint, const Parts& parts, int rank) {
  std::uint64_t number = 0;
  for (const auto& [name, thing] : parts) {
    if (!thing->is_per_rank()) continue;
    RandomStream stream({checkpoint.manifest.seed, random_purpose("resume at another world size")},
                        static_cast<std::uint64_t>(checkpoint.manifest.step),
                        static_cast<std::uint64_t>(rank) << 16 | number++);
    thing->derive(stream());
  }
}

}  // namespace

NamedTensors own_tensors(Tracked& thing) {
  return thing.is_per_rank() ? thing.named_tensors() : thing.rank_tensors();
}

std::optional<ValidCheckpoint> newest_common(FileSystem& files, const std::string& folder,
                                             const World& world, const ProcessGroup& group,
                                             const Log& log) {
  auto steps = list_steps(files, folder);
  const auto num_steps = static_cast<std::int64_t>(steps.size());
  auto bound = std::numeric_limits<std::int64_t>::max();
  while (true) {
    auto own = newest_opened(files, folder, steps, bound, log);
    Proposal proposal{.num_steps = num_steps};
    if (own) proposal = {own->manifest.step, own->manifest_digest, num_steps};
    const auto agreement = decide_common(gather(proposal, group), folder);
    if (agreement.kind == Agreement::Kind::fresh) return std::nullopt;
    bound = agreement.step;
    if (agreement.kind != Agreement::Kind::resume) continue;
    const auto fault = shared_check(files, *own, world, group);
    if (fault.empty()) return own;
    log.warning(fmt::format("skipped the checkpoint of step {}: {}", own->manifest.step, fault));
    std::erase(steps, own->manifest.step);
  }
}

void expect_same_run(const Manifest& saved, const RunOptions& options, int rank, const Log& log) {
  if (saved.reason == SaveReason::import) return;
  if (saved.seed != options.seed) {
    throw UsageError(
        fmt::format("the checkpoint of step {} has seed {}, this run has seed {}; use the "
                    "checkpoint's seed, or another folder",
                    saved.step, saved.seed, options.seed));
  }
  if (saved.data_id != options.data_id) {
    throw UsageError(
        fmt::format("the checkpoint of step {} has data id {:016x}, this run has {:016x}; use the "
                    "checkpoint's data, or another folder",
                    saved.step, saved.data_id, options.data_id));
  }
  if (rank != 0) return;
  const auto stored = options.translate_configuration
                          ? options.translate_configuration(saved.configuration)
                          : saved.configuration;
  if (stored != options.configuration) {
    log.warning(fmt::format("the configuration is {}, the checkpoint of step {} has {}",
                            options.configuration, saved.step, stored));
  }
  if (saved.threads != at::get_num_threads()) {
    log.warning(fmt::format(
        "threads per rank: {1} in the checkpoint of step {0}, {2} in this run: the last "
        "bits of sums can differ from an uninterrupted run",
        saved.step, saved.threads, at::get_num_threads()));
  }
}

void load_parts(FileSystem& files, const ValidCheckpoint& checkpoint, const Parts& parts, int rank,
                int world, const Log& log) {
  PartLoader loader(files, checkpoint, parts, log);
  loader.match_parts();
  loader.load_states();
  loader.open_replicated();
  const bool same_world =
      checkpoint.manifest.world == world && checkpoint.manifest.reason != SaveReason::import;
  std::vector<std::string> summed;
  if (same_world) {
    loader.open_own(rank);
  } else if (checkpoint.manifest.reason != SaveReason::import) {
    summed = loader.open_summed(rank, world);
  }
  loader.load_tensors();
  if (same_world) return;
  derive_own(checkpoint, parts, rank);
  if (rank != 0) return;
  auto text = fmt::format(
      "{} was saved by {} ranks and resumes with {}: random generators are seeded from seed {}, "
      "step and rank",
      checkpoint.path, checkpoint.manifest.world, world, checkpoint.manifest.seed);
  if (!summed.empty()) {
    text += fmt::format(
        "; the per-rank tensors of {} are redistributed, their sums over the ranks "
        "are preserved",
        fmt::join(summed, ", "));
  }
  log.info(text);
}

}  // namespace lockstep
