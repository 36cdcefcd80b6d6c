#include "lockstep/metrics/rank_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

namespace lockstep {
namespace {

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

// The plain numbers of a RankInterval by name; rank, host, steps and the split have their own code.
constexpr std::array<std::pair<const char*, double RankInterval::*>, 4> kTimes{{
    {"step_ms", &RankInterval::step_ms},
    {"p50_ms", &RankInterval::p50_ms},
    {"p95_ms", &RankInterval::p95_ms},
    {"max_ms", &RankInterval::max_ms},
}};
constexpr std::array<std::pair<const char*, double RankInterval::*>, 14> kFigures{{
    {"late_ms", &RankInterval::late_ms},
    {"last", &RankInterval::last},
    {"reduce_ms", &RankInterval::reduce_ms},
    {"overlap", &RankInterval::overlap},
    {"launch_ms", &RankInterval::launch_ms},
    {"rss_bytes", &RankInterval::rss_bytes},
    {"peak_rss_bytes", &RankInterval::peak_rss_bytes},
    {"cpu_ms", &RankInterval::cpu_ms},
    {"network_ms", &RankInterval::network_ms},
    {"run_queue_ms", &RankInterval::run_queue_ms},
    {"voluntary_switches", &RankInterval::voluntary_switches},
    {"involuntary_switches", &RankInterval::involuntary_switches},
    {"steal", &RankInterval::steal},
    {"throttled_ms", &RankInterval::throttled_ms},
}};
constexpr std::array<std::pair<const char*, double BucketFigures::*>, 7> kBucketFigures{{
    {"bytes", &BucketFigures::bytes},
    {"ready_ms", &BucketFigures::ready_ms},
    {"launched_ms", &BucketFigures::launched_ms},
    {"all_in_ms", &BucketFigures::all_in_ms},
    {"done_ms", &BucketFigures::done_ms},
    {"gb_per_s", &BucketFigures::gb_per_s},
    {"count", &BucketFigures::count},
}};

std::string part_name(std::size_t part) {
  return std::string(name_of(static_cast<StepPart>(part))) + "_ms";
}

void add(MetricRow& row, std::string name, double value) {
  row.metrics.push_back({std::move(name), rounded(value)});
}

bool is_event(const MetricRow& row, std::string_view event) {
  return row.kind == MetricKind::event && row.text("event") == event;
}

}  // namespace

MetricRow to_row(const RankInterval& interval) {
  MetricRow row{.step = interval.step, .kind = MetricKind::rank, .time = interval.time};
  row.metrics = {{"rank", std::int64_t{interval.rank}},
                 {"host", std::int64_t{interval.host}},
                 {"steps", interval.steps},
                 {"loss", interval.loss}};
  for (const auto& [name, member] : kTimes) add(row, name, interval.*member);
  for (std::size_t i = 0; i < kNumStepParts; ++i) add(row, part_name(i), interval.split_ms[i]);
  for (const auto& [name, member] : kFigures) add(row, name, interval.*member);
  if (interval.slowest_peer_mb_per_s > 0) {
    row.metrics.push_back({"slowest_peer", static_cast<std::int64_t>(interval.slowest_peer)});
    add(row, "slowest_peer_mb_per_s", interval.slowest_peer_mb_per_s);
    add(row, "fastest_peer_mb_per_s", interval.fastest_peer_mb_per_s);
  }
  if (interval.gpu) {
    add(row, "gpu_utilization", interval.gpu->utilization);
    add(row, "gpu_memory_bytes", interval.gpu->memory_bytes);
    add(row, "gpu_clock_mhz", interval.gpu->clock_mhz);
    if (interval.gpu->memory_clock_mhz) {
      add(row, "gpu_memory_clock_mhz", *interval.gpu->memory_clock_mhz);
    }
    if (interval.gpu->power_watts) add(row, "gpu_power_watts", *interval.gpu->power_watts);
    if (interval.gpu->host_syncs) add(row, "host_syncs", *interval.gpu->host_syncs);
  }
  return row;
}

MetricRow to_row(const BucketFigures& bucket, std::int64_t step) {
  MetricRow row{.step = step, .kind = MetricKind::bucket};
  row.metrics = {{"bucket", std::int64_t{bucket.bucket}}};
  for (const auto& [name, member] : kBucketFigures) add(row, name, bucket.*member);
  return row;
}

MetricRow to_row(const Advice& advice, std::int64_t step) {
  MetricRow row{.step = step, .kind = MetricKind::event};
  row.metrics = {{"event", "advice"},
                 {"cause", std::string(name_of(advice.cause))},
                 {"rank", std::int64_t{advice.rank.value_or(-1)}},
                 {"gain", rounded(advice.gain)},
                 {"text", advice.text},
                 {"action", advice.action}};
  return row;
}

std::optional<RankInterval> try_rank_interval(const MetricRow& row) {
  if (row.kind != MetricKind::rank) return std::nullopt;
  const auto number = [&](const std::string& name) { return row.number(name).value_or(0); };
  RankInterval result{.step = row.step,
                      .time = row.time,
                      .rank = static_cast<int>(number("rank")),
                      .host = static_cast<int>(number("host")),
                      .steps = static_cast<std::int64_t>(number("steps")),
                      .loss = number("loss")};
  for (const auto& [name, member] : kTimes) result.*member = number(name);
  for (std::size_t i = 0; i < kNumStepParts; ++i) result.split_ms[i] = number(part_name(i));
  for (const auto& [name, member] : kFigures) result.*member = number(name);
  result.slowest_peer = row.number("slowest_peer").value_or(-1);
  result.slowest_peer_mb_per_s = number("slowest_peer_mb_per_s");
  result.fastest_peer_mb_per_s = number("fastest_peer_mb_per_s");
  if (row.find("gpu_utilization") != nullptr) {
    result.gpu = {.utilization = number("gpu_utilization"),
                  .memory_bytes = number("gpu_memory_bytes"),
                  .clock_mhz = number("gpu_clock_mhz"),
                  .memory_clock_mhz = row.number("gpu_memory_clock_mhz"),
                  .power_watts = row.number("gpu_power_watts"),
                  .host_syncs = row.number("host_syncs")};
  }
  return result;
}

std::optional<BucketFigures> try_bucket(const MetricRow& row) {
  if (row.kind != MetricKind::bucket) return std::nullopt;
  BucketFigures result{.bucket = static_cast<int>(row.number("bucket").value_or(0))};
  for (const auto& [name, member] : kBucketFigures) {
    result.*member = row.number(name).value_or(result.*member);
  }
  return result;
}

std::vector<RankInterval> rank_intervals(std::span<const MetricRow> rows) {
  std::vector<RankInterval> result;
  for (const auto& row : rows) {
    if (auto interval = try_rank_interval(row)) result.push_back(*std::move(interval));
  }
  return result;
}

std::vector<BucketFigures> newest_buckets(std::span<const MetricRow> rows) {
  std::vector<BucketFigures> result;
  std::int64_t step = -1;
  for (const auto& row : rows) {
    const auto bucket = try_bucket(row);
    if (!bucket) continue;
    if (row.step != step) result.clear();
    step = row.step;
    result.push_back(*bucket);
  }
  return result;
}

AnalysisInput analysis_input(std::span<const MetricRow> rows) {
  std::size_t begin = 0;
  AnalysisInput input;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (is_event(rows[i], "start")) begin = i;
    if (is_event(rows[i], "save_failed")) {
      input.facts.save_failures.push_back(
          {.rank = static_cast<int>(rows[i].number("rank").value_or(0)),
           .text = rows[i].text("text")});
    }
  }
  const auto of_this_start = rows.subspan(begin);
  input.intervals = rank_intervals(of_this_start);
  input.buckets = newest_buckets(of_this_start);
  if (!rows.empty() && is_event(rows[begin], "start")) {
    const auto& start = rows[begin];
    input.facts.workers = static_cast<int>(start.number("workers").value_or(0));
    input.facts.save_every = start.number("save_every").value_or(0);
    input.facts.bucket_bytes = start.number("bucket_bytes").value_or(0);
    input.facts.backend = start.text("backend");
  }
  return input;
}

}  // namespace lockstep
