#include "lockstep/trace/run_analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/trace/bucket_analysis_internal.h"
#include "lockstep/trace/link_speed.h"
#include "lockstep/trace/median_internal.h"

namespace lockstep {
namespace {

// Below these fractions of a step there is no advice.
constexpr double kLate = 0.05;        // waiting for one rank
constexpr double kDataWait = 0.05;    // as LoaderOptions' own advice
constexpr double kStolen = 0.05;      // throttling, steal, other programs
constexpr double kCheckpoint = 0.03;  // stall of saves
constexpr double kEvaluation = 0.15;
constexpr double kExposed = 0.10;    // communication, without waiting for late ranks
constexpr double kLeastGain = 0.02;  // expected
constexpr double kSmallBucket = 256 << 10;

// Means over the intervals of one rank, weighted by their steps.
struct RankMeans {
  RankInterval mean;
  std::vector<double> p50;
  LinkSpeeds speeds = {};
};

// The peer that was the slowest one in most intervals, and its median rate.
LinkSpeeds speeds_over(const std::vector<const RankInterval*>& intervals) {
  std::map<int, std::vector<double>> slowest;  // rates, by peer
  std::vector<double> fastest;
  for (const auto* each : intervals) {
    if (each->slowest_peer_mb_per_s <= 0) continue;
    slowest[static_cast<int>(each->slowest_peer)].push_back(each->slowest_peer_mb_per_s);
    fastest.push_back(each->fastest_peer_mb_per_s);
  }
  if (slowest.empty()) return {};
  const auto most =
      std::ranges::max_element(slowest, {}, [](const auto& each) { return each.second.size(); });
  return {most->first, median(most->second), median(std::move(fastest))};
}

RankMeans means_of(const std::vector<const RankInterval*>& intervals) {
  RankMeans result;
  auto& mean = result.mean;
  mean.rank = intervals.front()->rank;
  mean.host = intervals.front()->host;
  for (const auto* each : intervals) mean.steps += each->steps;
  const auto total = std::max(static_cast<double>(mean.steps), 1.0);
  for (const auto* each : intervals) {
    const auto weight = static_cast<double>(each->steps) / total;
    const auto add = [weight](double& sum, double value) { sum += weight * value; };
    add(mean.step_ms, each->step_ms);
    for (std::size_t i = 0; i < kNumStepParts; ++i) add(mean.split_ms[i], each->split_ms[i]);
    add(mean.late_ms, each->late_ms);
    add(mean.last, each->last);
    add(mean.reduce_ms, each->reduce_ms);
    add(mean.launch_ms, each->launch_ms);
    add(mean.cpu_ms, each->cpu_ms);
    add(mean.network_ms, each->network_ms);
    add(mean.run_queue_ms, each->run_queue_ms);
    add(mean.steal, each->steal);
    add(mean.throttled_ms, each->throttled_ms);
    mean.max_ms = std::max(mean.max_ms, each->max_ms);
    mean.peak_rss_bytes = std::max(mean.peak_rss_bytes, each->peak_rss_bytes);
    result.p50.push_back(each->p50_ms);
  }
  result.speeds = speeds_over(intervals);
  return result;
}

std::vector<RankMeans> means_by_rank(const std::vector<RankInterval>& intervals) {
  std::int64_t first = INT64_MAX;
  bool has_others = false;
  for (const auto& each : intervals) first = std::min(first, each.step);
  for (const auto& each : intervals) has_others = has_others || each.step > first;
  std::map<int, std::vector<const RankInterval*>> by_rank;
  for (const auto& each : intervals) {
    if (each.steps > 0 && (!has_others || each.step > first)) by_rank[each.rank].push_back(&each);
  }
  std::vector<RankMeans> result;
  for (const auto& [rank, list] : by_rank) result.push_back(means_of(list));
  return result;
}

double compute_ms(const RankInterval& rank) {
  return rank.part_ms(StepPart::forward) + rank.part_ms(StepPart::backward) +
         rank.part_ms(StepPart::optimizer) + rank.part_ms(StepPart::other);
}

double steal_ms(const RankInterval& rank) { return rank.steal * rank.step_ms; }

template <typename Figure>
double excess_over_others(const std::vector<RankMeans>& ranks, std::size_t own,
                          const Figure& figure) {
  std::vector<double> others;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i != own) others.push_back(figure(ranks[i].mean));
  }
  return figure(ranks[own].mean) - median(std::move(others));
}

double part_excess(const std::vector<RankMeans>& ranks, std::size_t own, StepPart part) {
  return excess_over_others(ranks, own, [part](const auto& each) { return each.part_ms(part); });
}

// A rank that computes longer either computes more slowly or was not running; the kernel knows
// about the latter.
Cause cause_of_compute(const std::vector<RankMeans>& ranks, std::size_t own, double excess) {
  const auto throttled = ranks[own].mean.throttled_ms;
  if (throttled > excess / 2) return Cause::throttled;
  if (excess_over_others(ranks, own, steal_ms) > excess / 2) return Cause::steal;
  const auto queued = excess_over_others(ranks, own, [](const auto& r) { return r.run_queue_ms; });
  return queued > excess / 2 ? Cause::processor : Cause::compute;
}

std::string straggler_text(const Straggler& straggler) {
  const auto what = [&]() -> std::string_view {
    switch (straggler.cause) {
      case Cause::data:
        return "waits longer for data";
      case Cause::checkpoint:
        return "is stalled longer by saves";
      case Cause::evaluation:
        return "evaluates longer";
      case Cause::processor:
        return "shares its processor with other programs";
      case Cause::steal:
        return "gets less processor time from the hypervisor";
      case Cause::throttled:
        return "is throttled by the quota of its cgroup";
      default:
        return "computes longer";
    }
  }();
  return fmt::format(
      "rank {} enters the last all-reduce {:.1f} ms after the others ({:.0f} % of "
      "steps last): it {}, by {:.1f} ms per step",
      straggler.rank, straggler.late_ms, 100 * straggler.last, what, straggler.excess_ms);
}

std::vector<Straggler> find_stragglers(const std::vector<RankMeans>& ranks) {
  std::vector<Straggler> result;
  if (ranks.size() < 2) return result;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& mean = ranks[i].mean;
    // Ranks that are late in turn, by noise, do not count.
    const auto late = excess_over_others(ranks, i, [](const auto& each) { return each.late_ms; });
    if (late < kLate * mean.step_ms) continue;
    Straggler straggler{.rank = mean.rank, .late_ms = late, .last = mean.last};
    straggler.excess_ms = excess_over_others(ranks, i, compute_ms);
    straggler.cause = Cause::compute;
    for (const auto& [part, cause] : {std::pair(StepPart::data_wait, Cause::data),
                                      std::pair(StepPart::checkpoint, Cause::checkpoint),
                                      std::pair(StepPart::evaluation, Cause::evaluation)}) {
      const auto excess = part_excess(ranks, i, part);
      if (excess <= straggler.excess_ms) continue;
      straggler.excess_ms = excess;
      straggler.cause = cause;
    }
    if (straggler.cause == Cause::compute) {
      straggler.cause = cause_of_compute(ranks, i, straggler.excess_ms);
    }
    straggler.text = straggler_text(straggler);
    result.push_back(std::move(straggler));
  }
  std::ranges::sort(result, std::greater{}, &Straggler::late_ms);
  return result;
}

std::string action_for(Cause cause, const RunFacts& facts) {
  switch (cause) {
    case Cause::data:
      return fmt::format("Load data with more threads: --workers {}",
                         facts.workers == 0 ? 2 : 2 * facts.workers);
    case Cause::compute:
      return "Use processors of equal speed, and give every rank equal work";
    case Cause::processor:
      return "End the other programs on its processor, or start fewer ranks: --ranks";
    case Cause::steal:
      return "Move to a machine with less load, or reserve its processors";
    case Cause::throttled:
      return "Raise the processor quota of the container, or start fewer ranks: --ranks";
    case Cause::checkpoint:
      return facts.save_every > 0
                 ? fmt::format("Save less often: --save-every {:.0f}, or use a faster disk",
                               4 * facts.save_every)
                 : "Save less often, or use a faster disk";
    case Cause::evaluation:
      return "Evaluate less often (--eval-every) or on fewer batches";
    case Cause::link:
      return "Use a faster link, or accumulate gradients: --grad-accum. If one rank is named, "
             "compare "
             "the rate of its network card with the others: ethtool";
    case Cause::small_buckets:
      return "Use larger buckets: --bucket-bytes 25MiB";
  }
  return {};
}

class Advisor {
 public:
  Advisor(const AnalysisInput& input, const std::vector<RankMeans>& ranks, RunAnalysis& analysis)
      : facts_(input.facts), ranks_(ranks), analysis_(analysis) {}

  void advise() {
    for (const auto& straggler : analysis_.stragglers) {
      // Saves and evaluations are judged for all ranks below; rank 0 does more of them.
      if (straggler.cause == Cause::checkpoint || straggler.cause == Cause::evaluation) continue;
      add(straggler.cause, straggler.rank, std::min(straggler.late_ms, straggler.excess_ms),
          straggler.text);
    }
    const auto step = analysis_.step_ms;
    const auto data = lowest([](const auto& r) { return r.part_ms(StepPart::data_wait); });
    if (data > kDataWait * step && facts_.workers >= 0) {
      add(Cause::data, {}, data, fmt::format("every rank waits {:.1f} ms per step for data", data));
    }
    const auto throttled = lowest([](const auto& r) { return r.throttled_ms; });
    if (throttled > kStolen * step && !has(Cause::throttled)) {
      add(Cause::throttled, {}, std::min(throttled, 0.9 * step),
          fmt::format("the quota of the cgroup stops the ranks for {:.1f} ms per step", throttled));
    }
    const auto stolen = lowest(steal_ms);
    if (stolen > kStolen * step) {
      add(Cause::steal, {}, stolen,
          fmt::format("the hypervisor withholds {:.1f} ms per step", stolen));
    }
    // A rank that waits for gradients gives its processor away and is ready all the time: the rank
    // that enters last does not wait.
    const auto queued = lowest(
        [](const auto& r) { return std::max(r.run_queue_ms - r.part_ms(StepPart::exposed), 0.0); });
    if (queued > 2 * kStolen * step && throttled <= kStolen * step) {
      add(Cause::processor, {}, queued,
          fmt::format("every rank is ready and waits for a processor, {:.1f} ms per step: there "
                      "are more ranks or programs than processors",
                      queued));
    }
    // With a quarter of the saves or evaluations, three quarters of their time are saved.
    const auto stall = highest([](const auto& r) { return r.part_ms(StepPart::checkpoint); });
    if (stall > kCheckpoint * step) {
      add(Cause::checkpoint, rank_of_highest_stall(), 0.75 * stall,
          fmt::format("saves stall training for {:.1f} ms per step, at most {:.0f} ms", stall,
                      highest([](const auto& r) { return r.max_ms; })));
    }
    for (const auto& failure : facts_.save_failures) {
      analysis_.advice.push_back({.cause = Cause::checkpoint,
                                  .rank = failure.rank,
                                  .text = failure.text,
                                  .action = "Free space on the disk of the run, or keep fewer "
                                            "checkpoints: --keep 2"});
    }
    const auto evaluation = highest([](const auto& r) { return r.part_ms(StepPart::evaluation); });
    if (evaluation > kEvaluation * step) {
      add(Cause::evaluation, {}, 0.5 * evaluation,
          fmt::format("evaluations take {:.0f} % of the time", 100 * evaluation / step));
    }
    advise_on_communication();
    std::ranges::sort(analysis_.advice, std::greater{}, &Advice::gain);
  }

  /// The rank that enters last does not wait for others: its exposed time is communication.
  [[nodiscard]] double pure_exposed() const {
    return lowest([](const auto& r) { return r.part_ms(StepPart::exposed); });
  }

 private:
  void advise_on_communication() {
    const auto exposed = pure_exposed();
    if (analysis_.world > 1 && exposed >= kExposed * analysis_.step_ms) {
      // The kernels' rates are valid also on machines with too few processors.
      std::vector<RankSpeeds> speeds;
      for (const auto& each : ranks_) speeds.push_back({each.mean.rank, each.speeds});
      if (const auto slow = find_slow_link(speeds)) {
        return add(Cause::link, slow->rank, exposed / 2,
                   fmt::format("communication takes {:.1f} ms per step after backward: {}", exposed,
                               slow->text));
      }
    }
    // Ranks that do not run make every all-reduce long.
    for (const auto& advice : analysis_.advice) {
      if (!advice.rank && (advice.cause == Cause::throttled || advice.cause == Cause::steal ||
                           advice.cause == Cause::processor)) {
        return;
      }
    }
    if (analysis_.world < 2) return;
    const auto& buckets = analysis_.buckets;
    if (buckets.count >= 8 && buckets.total_bytes / buckets.count < kSmallBucket) {
      advise_on_small_buckets();
      if (has(Cause::small_buckets)) return;
    }
    if (exposed < kExposed * analysis_.step_ms) return;
    // Two micro-batches per step halve the communication per sample.
    add(Cause::link, {}, exposed / 2,
        fmt::format("communication takes {:.1f} ms per step after backward{}", exposed,
                    buckets.mean_gb_per_s > 0
                        ? fmt::format("; the reductions reach {:.2f} GB/s", buckets.mean_gb_per_s)
                        : ""));
  }

  // Fewer buckets save the calls of backward. The bytes must still be reduced, at worst with no
  // backward left to hide it: that time is not gained. All of this is measured; there is no assumed
  // time of a call.
  void advise_on_small_buckets() {
    const auto& buckets = analysis_.buckets;
    const auto launching = lowest([](const auto& r) { return r.launch_ms; });
    const auto needed = std::max(std::ceil(buckets.total_bytes / (25 << 20)), 1.0);
    const auto reducing =
        needed * fit_reductions(buckets.buckets).time_of(buckets.total_bytes / needed);
    const auto mean_bytes = buckets.total_bytes / buckets.count;
    add(Cause::small_buckets, {}, launching * (1 - needed / buckets.count) - reducing,
        fmt::format("{:.0f} buckets of {} on average: their calls take {:.2f} ms of each backward",
                    buckets.count,
                    mean_bytes < 1024 ? fmt::format("{:.0f} bytes", mean_bytes)
                                      : fmt::format("{:.1f} KiB", mean_bytes / 1024),
                    launching));
  }

  void add(Cause cause, std::optional<int> rank, double saved_ms, std::string text) {
    if (saved_ms < kLeastGain * analysis_.step_ms) return;
    analysis_.advice.push_back({.cause = cause,
                                .rank = rank,
                                .gain = std::clamp(saved_ms / analysis_.step_ms, 0.0, 1.0),
                                .text = std::move(text),
                                .action = action_for(cause, facts_)});
  }
  [[nodiscard]] bool has(Cause cause) const {
    return std::ranges::any_of(analysis_.advice,
                               [cause](const auto& a) { return a.cause == cause; });
  }
  template <typename Figure>
  [[nodiscard]] double lowest(const Figure& figure) const {
    double result = figure(ranks_.front().mean);
    for (const auto& each : ranks_) result = std::min(result, figure(each.mean));
    return result;
  }
  template <typename Figure>
  [[nodiscard]] double highest(const Figure& figure) const {
    double result = figure(ranks_.front().mean);
    for (const auto& each : ranks_) result = std::max(result, figure(each.mean));
    return result;
  }
  [[nodiscard]] int rank_of_highest_stall() const {
    return std::ranges::max_element(
               ranks_, {}, [](const auto& each) { return each.mean.part_ms(StepPart::checkpoint); })
        ->mean.rank;
  }

  const RunFacts& facts_;
  const std::vector<RankMeans>& ranks_;
  RunAnalysis& analysis_;
};

}  // namespace

RunAnalysis analyse(const AnalysisInput& input) {
  RunAnalysis analysis;
  const auto ranks = means_by_rank(input.intervals);
  if (ranks.empty()) return analysis;
  analysis.world = static_cast<int>(ranks.size());
  for (const auto& [mean, p50, speeds] : ranks) {
    analysis.ranks.push_back({.rank = mean.rank,
                              .host = mean.host,
                              .steps = mean.steps,
                              .step_ms = mean.step_ms,
                              .p50_ms = median(p50),
                              .max_ms = mean.max_ms,
                              .split_ms = mean.split_ms,
                              .late_ms = mean.late_ms,
                              .last = mean.last,
                              .peak_rss_bytes = mean.peak_rss_bytes});
    analysis.steps = std::max(analysis.steps, mean.steps);
    analysis.step_ms += mean.step_ms / static_cast<double>(ranks.size());
    for (std::size_t i = 0; i < kNumStepParts; ++i) {
      analysis.split_ms[i] += mean.split_ms[i] / static_cast<double>(ranks.size());
    }
  }
  if (analysis.step_ms <= 0) return analysis;
  analysis.stragglers = find_stragglers(ranks);
  Advisor advisor(input, ranks, analysis);
  analysis.buckets = analyse_buckets(input.buckets, advisor.pure_exposed());
  if (const auto without = input.facts.step_ms_without_ddp; without && *without > 0) {
    analysis.communication_overhead = analysis.step_ms / *without - 1;
  }
  advisor.advise();
  return analysis;
}

}  // namespace lockstep
