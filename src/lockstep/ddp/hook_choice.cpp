#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "lockstep/base/log.h"
#include "lockstep/ddp/hook_choice_internal.h"
#include "lockstep/ddp/hook_run_internal.h"

namespace lockstep {
namespace {

using Seconds = std::chrono::duration<double>;

// The reason not to measure: within a host a transfer costs about as much as a copy of memory.
std::optional<std::string> reason_not_to_measure(const ProcessGroup& group, at::Device device) {
  if (group.size() == 1) return "there is one rank, and nothing is sent";
  const auto backend = group.backend(device);
  if (backend == "tcp" || backend == "hierarchical" || backend == "mpi") return std::nullopt;
  return fmt::format("backend {} ({}): within a host, encoding takes longer than it saves", backend,
                     group.backend_reason(device));
}

// One candidate on a copy of one bucket, on this rank. All ranks begin together.
HookTrial run_trial(const GradientBucket::State::Groups& groups, const GradientHook& hook,
                    GradientBucket::State::Facts facts, HookScratch& scratch) {
  facts.values = facts.values.clone();
  facts.is_trial = true;
  facts.name = "trial of " + hook.name();
  facts.weight = 1;
  facts.flags = {.sum = 1};
  groups.gradients.barrier({.name = "trial of hooks"}).wait();
  const auto begin = std::chrono::steady_clock::now();
  HookRun run(std::move(facts), groups, scratch);
  run.begin(hook);
  while (!run.has_ended()) (void)run.advance(/*waits=*/true);
  const Seconds total = std::chrono::steady_clock::now() - begin;
  const auto& state = run.state();
  return {.encode = Seconds(state.encode).count(),
          .decode = Seconds(state.decode).count(),
          .total = total.count(),
          .wire_bytes = state.wire_bytes};
}

// The maximum over the ranks: a reduction is as fast as its slowest rank.
void combine_slowest(const ProcessGroup& group, std::span<HookTrial> trials) {
  static_assert(sizeof(HookTrial) == 4 * sizeof(double));
  auto figures =
      at::from_blob(trials.data(), {static_cast<std::int64_t>(4 * trials.size())}, at::kDouble);
  group.all_reduce(figures, ReduceOp::max, {.name = "times of hooks"}).wait();
}

std::vector<HookTrial> measure(const GradientBucket::State::Groups& groups,
                               std::span<const GradientHook> candidates,
                               const GradientBucket::State::Facts& facts) {
  // The first run touches new memory. Where a transfer is that slow, the second is not worth it.
  constexpr double kLongEnough = 0.5;
  std::vector<HookTrial> trials;
  for (const auto& hook : candidates) {
    HookScratch scratch;
    std::vector<HookTrial> trial{run_trial(groups, hook, facts, scratch)};
    combine_slowest(groups.gradients, trial);
    if (trial.front().total < kLongEnough) {
      trial.push_back(run_trial(groups, hook, facts, scratch));
      combine_slowest(groups.gradients, std::span(trial).last(1));
    }
    trials.push_back(trial[fastest(trial)]);
  }
  return trials;
}

std::string size_in_words(double bytes) {
  constexpr double kKiB = 1024;
  return bytes < kKiB * kKiB ? fmt::format("{:.1f} KiB", bytes / kKiB)
                             : fmt::format("{:.1f} MiB", bytes / kKiB / kKiB);
}

}  // namespace

std::size_t fastest(std::span<const HookTrial> trials) {
  const auto least = std::min_element(
      trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.total < b.total; });
  return static_cast<std::size_t>(least - trials.begin());
}

std::string describe_choice(std::int64_t bytes, std::span<const GradientHook> candidates,
                            std::span<const HookTrial> trials) {
  constexpr double kMs = 1e3;
  const auto best = fastest(trials);
  const auto& chosen = trials[best];
  auto text = fmt::format(
      "buckets of {}: {}: {:.1f} ms encode + {:.1f} ms wire ({}) + {:.1f} ms "
      "decode = {:.1f} ms",
      size_in_words(static_cast<double>(bytes)), candidates[best].name(), chosen.encode * kMs,
      std::max(0.0, chosen.total - chosen.encode - chosen.decode) * kMs,
      size_in_words(chosen.wire_bytes), chosen.decode * kMs, chosen.total * kMs);
  const char* separator = "; ";
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (i == best) continue;
    text += fmt::format("{}{} {:.1f} ms", separator, candidates[i].name(), trials[i].total * kMs);
    separator = ", ";
  }
  return text;
}

std::vector<std::size_t> represented_by(std::span<const std::int64_t> bytes) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto is_near = [&](std::size_t other) {
      return result[other] == other &&
             std::max(bytes[i], bytes[other]) < 2 * std::min(bytes[i], bytes[other]);
    };
    std::size_t found = 0;
    while (found < i && !is_near(found)) ++found;
    result.push_back(found);
  }
  return result;
}

std::vector<int> choose_hooks(const GradientBucket::State::Groups& groups, at::Device device,
                              std::span<const GradientHook> candidates,
                              std::span<const std::vector<BucketParameter>> parameters,
                              std::span<const at::Tensor> values) {
  const auto& group = groups.gradients;
  const Log log({.rank = group.global_rank(group.rank()),
                 .level = group.rank() == 0 ? LogLevel::info : LogLevel::warning});
  std::vector<int> chosen(values.size(), 0);
  if (const auto reason = reason_not_to_measure(group, device)) {
    log.info(fmt::format("compression: {}: {}", candidates.front().name(), *reason));
    return chosen;
  }
  std::vector<std::int64_t> bytes;
  for (const auto& each : values) {
    bytes.push_back(each.defined() ? static_cast<std::int64_t>(each.nbytes()) : 0);
  }
  const auto measured = represented_by(bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i].defined()) continue;
    if (measured[i] != i) {
      chosen[i] = chosen[measured[i]];
      continue;
    }
    const auto trials = measure(groups, candidates,
                                {.values = values[i],
                                 .parameters = parameters[i],
                                 .index = static_cast<int>(i),
                                 .is_last = i + 1 == values.size()});
    chosen[i] = static_cast<int>(fastest(trials));
    log.info("compression: " + describe_choice(bytes[i], candidates, trials));
  }
  return chosen;
}

}  // namespace lockstep
