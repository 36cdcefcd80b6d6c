#include "lockstep/trace/interval_meter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

double milliseconds(std::chrono::nanoseconds time) {
  return 1e-6 * static_cast<double>(time.count());
}

// The smallest value that `fraction` of the sorted values do not exceed.
double quantile(const std::vector<double>& sorted, double fraction) {
  const auto count = static_cast<double>(sorted.size());
  const auto index = static_cast<std::size_t>(std::max(std::ceil(fraction * count) - 1, 0.0));
  return sorted[index];
}

// Every number of a RankInterval but those of the GPU, in a fixed order: one list serves both
// directions.
template <typename Interval, typename Visit>
void visit_numbers(Interval& interval, const Visit& visit) {
  visit(interval.step);
  visit(interval.time);
  visit(interval.rank);
  visit(interval.host);
  visit(interval.steps);
  visit(interval.loss);
  visit(interval.step_ms);
  visit(interval.p50_ms);
  visit(interval.p95_ms);
  visit(interval.max_ms);
  for (auto& part : interval.split_ms) visit(part);
  visit(interval.late_ms);
  visit(interval.last);
  visit(interval.reduce_ms);
  visit(interval.overlap);
  visit(interval.launch_ms);
  visit(interval.rss_bytes);
  visit(interval.peak_rss_bytes);
  visit(interval.cpu_ms);
  visit(interval.network_ms);
  visit(interval.run_queue_ms);
  visit(interval.voluntary_switches);
  visit(interval.involuntary_switches);
  visit(interval.steal);
  visit(interval.throttled_ms);
  visit(interval.slowest_peer);
  visit(interval.slowest_peer_mb_per_s);
  visit(interval.fastest_peer_mb_per_s);
}

}  // namespace

void IntervalMeter::add(const StepSplit& split, const StepReduction& reduction) {
  step_ms_.push_back(milliseconds(split.whole()));
  split_ += split;
  reducing_ += reduction.reducing;
  launching_ += reduction.launching;
  if (entries_.size() == kMaxEntries) entries_.erase(entries_.begin());
  entries_.push_back(static_cast<double>(reduction.entered.count()));
}

RankInterval IntervalMeter::read_and_reset(const ProcessUsage& now) {
  RankInterval result{.steps = steps()};
  if (result.steps > 0) {
    const auto count = static_cast<double>(result.steps);
    for (std::size_t i = 0; i < kNumStepParts; ++i) {
      result.split_ms[i] = milliseconds(split_.parts[i]) / count;
    }
    result.step_ms = std::accumulate(result.split_ms.begin(), result.split_ms.end(), 0.0);
    std::ranges::sort(step_ms_);
    result.p50_ms = quantile(step_ms_, 0.5);
    result.p95_ms = quantile(step_ms_, 0.95);
    result.max_ms = step_ms_.back();
    result.reduce_ms = milliseconds(reducing_) / count;
    result.launch_ms = milliseconds(launching_) / count;
    const auto exposed = result.part_ms(StepPart::exposed);
    result.overlap =
        result.reduce_ms > 0 ? std::clamp(1 - exposed / result.reduce_ms, 0.0, 1.0) : 0;
    result.cpu_ms = 1e3 * (now.cpu_seconds - usage_.cpu_seconds) / count;
    result.run_queue_ms = 1e3 * (now.run_queue_seconds - usage_.run_queue_seconds) / count;
    result.voluntary_switches =
        static_cast<double>(now.voluntary_switches - usage_.voluntary_switches) / count;
    result.involuntary_switches =
        static_cast<double>(now.involuntary_switches - usage_.involuntary_switches) / count;
    result.throttled_ms = 1e3 * (now.throttled_seconds - usage_.throttled_seconds) / count;
    const auto processors = now.processor_seconds - usage_.processor_seconds;
    const auto steal = now.steal_seconds - usage_.steal_seconds;
    result.steal = processors > 0 ? std::clamp(steal / processors, 0.0, 1.0) : 0;
  }
  result.rss_bytes = now.rss_bytes;
  result.peak_rss_bytes = now.peak_rss_bytes;
  *this = IntervalMeter(now);
  return result;
}

std::vector<double> to_numbers(const RankInterval& interval, std::span<const double> entries) {
  std::vector<double> numbers;
  visit_numbers(interval, [&](auto value) { numbers.push_back(static_cast<double>(value)); });
  numbers.push_back(interval.gpu ? 1 : 0);
  if (interval.gpu) {
    numbers.push_back(interval.gpu->utilization);
    numbers.push_back(interval.gpu->memory_bytes);
    numbers.push_back(interval.gpu->clock_mhz);
    numbers.push_back(interval.gpu->memory_clock_mhz.value_or(-1));
    numbers.push_back(interval.gpu->power_watts.value_or(-1));
    numbers.push_back(interval.gpu->host_syncs.value_or(-1));
  }
  numbers.insert(numbers.end(), entries.begin(), entries.end());
  return numbers;
}

GatheredInterval interval_from_numbers(std::span<const double> numbers) {
  GatheredInterval result;
  std::size_t at = 0;
  const auto next = [&] {
    if (at >= numbers.size()) {
      throw UsageError(
          "the figures of another rank are incomplete: start all ranks with the same version of "
          "lockstep");
    }
    return numbers[at++];
  };
  visit_numbers(result.interval, [&](auto& value) {
    value = static_cast<std::remove_reference_t<decltype(value)>>(next());
  });
  if (next() != 0) {
    auto& gpu = result.interval.gpu.emplace();
    gpu.utilization = next();
    gpu.memory_bytes = next();
    gpu.clock_mhz = next();
    for (auto* optional : {&gpu.memory_clock_mhz, &gpu.power_watts, &gpu.host_syncs}) {
      if (const auto value = next(); value >= 0) *optional = value;
    }
  }
  result.entries.assign(numbers.begin() + static_cast<std::ptrdiff_t>(at), numbers.end());
  return result;
}

void compare_entries(std::span<GatheredInterval> ranks) {
  if (ranks.size() < 2) return;
  auto count = ranks.front().entries.size();
  for (const auto& rank : ranks) count = std::min(count, rank.entries.size());
  if (count == 0) return;
  std::vector<std::size_t> order(ranks.size());  // of entry
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t step = 0; step < count; ++step) {
    const auto entry = [&](std::size_t rank) { return ranks[rank].entries[step]; };
    std::ranges::sort(order, {}, entry);
    for (std::size_t position = 0; position < order.size(); ++position) {
      const auto other = [&](std::size_t i) { return entry(order[i < position ? i : i + 1]); };
      const auto others = order.size() - 1;
      const auto middle = (other((others - 1) / 2) + other(others / 2)) / 2;
      auto& interval = ranks[order[position]].interval;
      interval.late_ms += std::max(entry(order[position]) - middle, 0.0);
    }
    // Ranks that enter at the same moment are not late.
    if (entry(order.back()) > entry(order[order.size() - 2]))
      ranks[order.back()].interval.last += 1;
  }
  for (auto& rank : ranks) {
    rank.interval.late_ms *= 1e-6 / static_cast<double>(count);
    rank.interval.last /= static_cast<double>(count);
  }
}

}  // namespace lockstep
