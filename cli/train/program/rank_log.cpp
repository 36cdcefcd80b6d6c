#include "cli/train/program/rank_log.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/collectives/backends.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/metrics/rank_rows.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kRecentIntervals = 100;
constexpr std::chrono::seconds kClockTime{60};

// The GPU that has this index among those that the process may use.
std::optional<Gpu> try_gpu(int index) {
  const auto gpus = list_gpus(Environment::of_process());
  if (index < 0 || static_cast<std::size_t>(index) >= gpus.size()) return std::nullopt;
  return gpus[static_cast<std::size_t>(index)];
}

}  // namespace

GpuMeter::GpuMeter(std::shared_ptr<const Nvml> nvml, Gpu gpu)
    : nvml_(std::move(nvml)), gpu_(std::move(gpu)) {}

void GpuMeter::look() {
  if (!nvml_) return;
  const auto load = read_gpu_load(*nvml_, gpu_);
  seen_ = GpuFigures{.utilization = load.utilization.value_or(0),
                     .memory_bytes = load.memory_used_bytes.value_or(0),
                     .clock_mhz = load.sm_clock_mhz.value_or(0),
                     .memory_clock_mhz = load.memory_clock_mhz,
                     .power_watts = load.power_watts};
}

std::optional<GpuFigures> GpuMeter::read_and_reset(std::int64_t steps) {
  const auto syncs = static_cast<double>(syncs_.read_and_reset());
  if (seen_) seen_->host_syncs = syncs / static_cast<double>(std::max<std::int64_t>(steps, 1));
  return std::exchange(seen_, std::nullopt);
}

RankLog::RankLog(const World& world, const ProcessGroup& group, Reporter& reporter,
                 const RankLogOptions& options)
    : world_(world),
      group_(group),
      reporter_(reporter),
      facts_(options.facts),
      clock_(align_clocks(world, "train", Deadline::after(kClockTime))) {
  if (options.gpu) {
    if (auto gpu = try_gpu(*options.gpu)) gpu_.emplace(Nvml::open(), *std::move(gpu));
  }
  counts_ = link_counts(world);
  network_seconds_ = network_thread_seconds(world);
}

void RankLog::add(const StepSplit& split, const StepRecord& record,
                  StepClock::time_point backward) {
  const auto entered = last_entry(record);
  meter_.add(split, {.entered = entered == StepClock::time_point{}
                                    ? std::chrono::nanoseconds{0}
                                    : entered.time_since_epoch() + clock_.offset,
                     .reducing = reducing_time(record),
                     .launching = record.launching});
  bucket_meter_.add(record, backward);
}

void RankLog::before_wait() {
  if (gpu_) gpu_->look();
}

void RankLog::end_interval(std::int64_t step, double loss) {
  const std::vector<double> entries(meter_.entries().begin(), meter_.entries().end());
  auto own = meter_.read_and_reset();
  own.step = step;
  own.rank = world_.rank();
  own.host = world_.host_of(world_.rank());
  own.loss = loss;
  if (gpu_) own.gpu = gpu_->read_and_reset(own.steps);
  auto counts = link_counts(world_);
  const auto speeds = link_speeds(counts_, counts);
  counts_ = std::move(counts);
  own.slowest_peer = speeds.slowest_peer;
  own.slowest_peer_mb_per_s = speeds.slowest_mb_per_s;
  own.fastest_peer_mb_per_s = speeds.fastest_mb_per_s;
  const auto seconds = network_thread_seconds(world_);
  own.network_ms = 1e3 * (seconds - std::exchange(network_seconds_, seconds)) /
                   static_cast<double>(std::max<std::int64_t>(own.steps, 1));
  const auto numbers = to_numbers(own, entries);
  std::vector<GatheredInterval> ranks;
  for (const auto& each : gather_values(group_, std::span(numbers), {.name = "figures of ranks"})) {
    if (reporter_.speaks()) ranks.push_back(interval_from_numbers(each));
  }
  if (!reporter_.speaks()) return;
  compare_entries(ranks);
  auto& interval = recent_.emplace_back();
  for (const auto& rank : ranks) {
    reporter_.write(to_row(rank.interval));
    interval.push_back(rank.interval);
  }
  if (recent_.size() > kRecentIntervals) recent_.pop_front();
}

void RankLog::end_period(std::int64_t step) {
  if (bucket_meter_.steps() == 0) return;
  const auto numbers = bucket_meter_.read_and_reset();
  const auto of_ranks = gather_values(group_, std::span(numbers), {.name = "figures of buckets"});
  if (!reporter_.speaks()) return;
  buckets_ = mean_buckets(of_ranks);
  for (const auto& bucket : buckets_) reporter_.write(to_row(bucket, step));
  std::set<std::pair<Cause, int>> now;
  const auto result = analysis();
  for (const auto& advice : result.advice) now.emplace(advice.cause, advice.rank.value_or(-1));
  if (now == given_) return;
  given_ = now;
  for (const auto& advice : result.advice) reporter_.write(to_row(advice, step));
}

RunAnalysis RankLog::analysis() const {
  AnalysisInput input{.buckets = buckets_, .facts = facts_};
  for (const auto& interval : recent_) {
    input.intervals.insert(input.intervals.end(), interval.begin(), interval.end());
  }
  return analyse(input);
}

void RankLog::event(std::int64_t step, std::string kind, std::vector<Metric> metrics) {
  MetricRow row{.step = step, .kind = MetricKind::event};
  row.metrics.push_back({"event", std::move(kind)});
  for (auto& metric : metrics) row.metrics.push_back(std::move(metric));
  reporter_.write(row);
}

}  // namespace lockstep::cli
