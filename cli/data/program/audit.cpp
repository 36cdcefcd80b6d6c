// `lockstep data audit`
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>

#include "cli/arguments.h"
#include "cli/data/program/sample_audit.h"
#include "cli/data/program/verbs.h"
#include "lockstep/base/error.h"
#include "lockstep/data/file_datasets.h"
#include "lockstep/data/sampler.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep data audit: count how often the ranks of a world read each sample\n"
    "\n"
    "  FILE… | --samples N     data files, or a number of samples\n"
    "  --world N,N             world sizes to compare (default 1,2,4)\n"
    "  --global-batch N        samples per step over all ranks (default 256)\n"
    "  --epochs N              epochs (default 2)\n"
    "  --order WORD            native, torch or sequential (default native)\n"
    "  --seed N                seed of the order (default 0)\n"
    "  --tail WORD             last batch: drop, pad or uneven (default drop)\n"
    "  --shard WORD            split of a batch: chunk or stride (default chunk)\n"
    "  --window N              tokens per sample, for token files (default 1024)\n"
    "\n"
    "Reads only the sizes of files. Exit code: 0 if every sample is read once per\n"
    "epoch, except for the tail, and every world size has the same global batches; 1\n"
    "if not, with a list of the differences.\n"
    "\n"
    "Examples\n"
    "  lockstep data audit --samples 60000 --world 1,2,4,8 --epochs 3\n"
    "  lockstep data audit train.bin --window 256 --global-batch 512 --tail uneven\n";

struct AuditOptions {
  bool help = false;
  std::vector<std::string> files;
  std::int64_t num_samples = 0;
  std::vector<int> worlds{1, 2, 4};
  std::int64_t num_epochs = 2;
  std::int64_t window = 1024;
  OrderOptions order;
  SamplerOptions sampler{.global_batch = 256};
};

AuditOptions read_options(const std::vector<std::string>& arguments) {
  AuditOptions options;
  std::string order = "native";
  std::string tail = "drop";
  std::string shard = "chunk";
  Arguments declared("data audit", options.help);
  declared.option("files", options.files);
  declared.option("--samples", options.num_samples);
  declared.option("--world", options.worlds);
  declared.option("--global-batch", options.sampler.global_batch);
  declared.option("--epochs", options.num_epochs);
  declared.option("--order", order);
  declared.option("--seed", options.order.seed);
  declared.option("--tail", tail);
  declared.option("--shard", shard);
  declared.option("--window", options.window);
  declared.read(arguments);
  if (options.help) return options;
  options.order.kind = std::array{
      OrderKind::native, OrderKind::torch,
      OrderKind::sequential}[read_choice("--order", order, {"native", "torch", "sequential"})];
  options.sampler.tail = std::array{
      Tail::drop, Tail::pad, Tail::uneven}[read_choice("--tail", tail, {"drop", "pad", "uneven"})];
  options.sampler.shard = std::array{
      SampleShard::chunk, SampleShard::stride}[read_choice("--shard", shard, {"chunk", "stride"})];
  if (options.files.empty() == (options.num_samples == 0)) {
    throw UsageError("name data files, or give a number of samples: --samples 60000");
  }
  if (options.num_epochs < 1 || options.num_samples < 0 || options.worlds.empty() ||
      std::ranges::min(options.worlds) < 1) {
    throw UsageError("--epochs, --samples and each size of --world must be 1 or more");
  }
  return options;
}

std::vector<Sampler> samplers(const AuditOptions& options, std::int64_t size, int world) {
  std::vector<Sampler> ranks;
  for (int rank = 0; rank < world; ++rank) {
    auto sampler = options.sampler;
    sampler.rank = rank;
    sampler.world = world;
    ranks.emplace_back(Order(size, options.order), 0, sampler);
  }
  return ranks;
}

AuditResult audit_epoch(const AuditOptions& options, std::int64_t size, int world,
                        std::int64_t epoch) {
  auto ranks = samplers(options, size, world);
  for (auto& rank : ranks) rank.set_epoch(epoch);
  SampleAudit audit(size);
  std::vector<std::int64_t> batch;
  for (auto left = ranks.front().steps_per_epoch(); left > 0; --left) {
    batch.clear();
    for (auto& rank : ranks) {
      const auto shard = rank.next();
      batch.insert(batch.end(), shard.samples.begin(), shard.samples.end());
    }
    audit.add_step(batch);
  }
  return audit.result();
}

// The samples that the tail leaves out or repeats; any other deviation is a fault.
struct Tolerated {
  std::int64_t missing = 0;
  std::int64_t repeated = 0;
};

Tolerated tolerated(const AuditOptions& options, std::int64_t size) {
  const auto remainder = size % options.sampler.global_batch;
  if (remainder == 0 || options.sampler.tail == Tail::uneven) return {};
  if (options.sampler.tail == Tail::drop) return {.missing = remainder};
  return {.repeated = options.sampler.global_batch - remainder};
}

bool print_row(const AuditResult& found, const AuditResult& first, const Tolerated& allowed,
               int world, std::int64_t epoch) {
  const bool correct =
      found.num_missing == allowed.missing && found.num_repeated == allowed.repeated;
  const bool same = found.batches == first.batches;
  std::cout << fmt::format("{:>5}  {:>5}  {:>8}  {:>12}  {:>8}  {:>8}  {}\n", world, epoch,
                           found.num_steps, found.num_once, found.num_missing, found.num_repeated,
                           same ? "yes" : "NO");
  if (!correct && !found.first_missing.empty()) {
    std::cout << fmt::format("       missing: {} …\n", fmt::join(found.first_missing, ", "));
  }
  if (!correct && !found.first_repeated.empty()) {
    std::cout << fmt::format("       repeated: {} …\n", fmt::join(found.first_repeated, ", "));
  }
  return correct && same;
}

}  // namespace

int run_audit(const std::vector<std::string>& arguments) {
  const auto options = read_options(arguments);
  if (options.help) {
    std::cout << kHelp;
    return 0;
  }
  const auto size =
      options.files.empty()
          ? options.num_samples
          : open_dataset(options.files, {.windows = {.window = options.window}})->size();
  // Throws for an invalid world size before the first row.
  for (const int world : options.worlds) (void)samplers(options, size, world);
  std::cout << fmt::format("{} samples, global batch {}\n", size, options.sampler.global_batch)
            << "world  epoch     steps     seen once   missing  repeated  same global batches\n";
  const auto allowed = tolerated(options, size);
  std::int64_t num_faults = 0;
  std::uint64_t last_order = 0;
  bool shuffled = true;
  for (std::int64_t epoch = 0; epoch < options.num_epochs; ++epoch) {
    std::optional<AuditResult> first;
    for (const int world : options.worlds) {
      const auto found = audit_epoch(options, size, world, epoch);
      if (!first) first = found;
      if (!print_row(found, *first, allowed, world, epoch)) ++num_faults;
    }
    shuffled = shuffled && (epoch == 0 || first->order != last_order);
    last_order = first->order;
  }
  if (num_faults > 0) {
    std::cout << fmt::format("{} rows have faults: see above.\n", num_faults);
    return 1;
  }
  std::cout << fmt::format(
      "Every sample is read once per epoch{}{}; every world size has the same global batches; the "
      "order {} between epochs.\n",
      allowed.missing > 0 ? fmt::format(", except {} that the tail drops", allowed.missing) : "",
      allowed.repeated > 0 ? fmt::format(", and {} again to pad the tail", allowed.repeated) : "",
      shuffled ? "changes" : "stays the same");
  return 0;
}

}  // namespace lockstep::cli
