#include "lockstep/report/run_metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
// Intervals per rank. Twice as many are merged in pairs; a chart has fewer pixels.
constexpr std::size_t kMaxIntervals = 2048;
constexpr std::int64_t kMaxRanks = 65'536;

// The numbers of a rank row, and where they go.
struct RankField {
  std::string_view name;
  double RankInterval::*field;
};
constexpr std::array kRankFields{
    RankField{"loss", &RankInterval::loss},
    RankField{"step_ms", &RankInterval::step_ms},
    RankField{"p50_ms", &RankInterval::p50_ms},
    RankField{"p95_ms", &RankInterval::p95_ms},
    RankField{"max_ms", &RankInterval::max_ms},
    RankField{"late_ms", &RankInterval::late_ms},
    RankField{"last", &RankInterval::last},
    RankField{"reduce_ms", &RankInterval::reduce_ms},
    RankField{"overlap", &RankInterval::overlap},
    RankField{"rss_bytes", &RankInterval::rss_bytes},
    RankField{"peak_rss_bytes", &RankInterval::peak_rss_bytes},
    RankField{"cpu_ms", &RankInterval::cpu_ms},
    RankField{"network_ms", &RankInterval::network_ms},
    RankField{"run_queue_ms", &RankInterval::run_queue_ms},
    RankField{"voluntary_switches", &RankInterval::voluntary_switches},
    RankField{"involuntary_switches", &RankInterval::involuntary_switches},
    RankField{"steal", &RankInterval::steal},
    RankField{"throttled_ms", &RankInterval::throttled_ms},
};

// Fields of a line in the order of the writer: the next lookup usually succeeds at the next field.
class Cursor {
 public:
  explicit Cursor(std::span<const FlatField> fields) : fields_(fields) {}
  [[nodiscard]] double number(std::string_view name, double otherwise = 0) {
    for (std::size_t tried = 0; tried < fields_.size(); ++tried) {
      const auto& field = fields_[next_];
      next_ = next_ + 1 == fields_.size() ? 0 : next_ + 1;
      if (field.name == name) return std::isnan(field.number) ? otherwise : field.number;
    }
    return otherwise;
  }

 private:
  std::span<const FlatField> fields_;
  std::size_t next_ = 0;
};

// "data_wait" for data_wait_ms.
const std::array<std::string, kNumStepParts>& part_names() {
  static const auto names = [] {
    std::array<std::string, kNumStepParts> result;
    for (std::size_t part = 0; part < kNumStepParts; ++part) {
      result[part] = std::string(name_of(static_cast<StepPart>(part))) + "_ms";
    }
    return result;
  }();
  return names;
}

// Two neighbouring intervals as one: means weighted by steps, maxima kept.
RankInterval merged(const RankInterval& a, const RankInterval& b) {
  const double all = std::max(1.0, static_cast<double>(a.steps + b.steps));
  const double weight = static_cast<double>(b.steps) / all;
  const auto mean = [&](double left, double right) { return left + weight * (right - left); };
  RankInterval result = b;
  result.steps = a.steps + b.steps;
  for (const auto& [name, field] : kRankFields) result.*field = mean(a.*field, b.*field);
  for (std::size_t part = 0; part < kNumStepParts; ++part) {
    result.split_ms[part] = mean(a.split_ms[part], b.split_ms[part]);
  }
  result.max_ms = std::max(a.max_ms, b.max_ms);
  result.p95_ms = std::max(a.p95_ms, b.p95_ms);
  result.peak_rss_bytes = std::max(a.peak_rss_bytes, b.peak_rss_bytes);
  if (a.slowest_peer_mb_per_s > 0 &&
      (b.slowest_peer_mb_per_s <= 0 || a.slowest_peer_mb_per_s < b.slowest_peer_mb_per_s)) {
    result.slowest_peer = a.slowest_peer;
    result.slowest_peer_mb_per_s = a.slowest_peer_mb_per_s;
  }
  result.fastest_peer_mb_per_s = std::max(a.fastest_peer_mb_per_s, b.fastest_peer_mb_per_s);
  return result;
}

void merge_pairs(std::vector<RankInterval>& intervals) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i + 1 < intervals.size(); i += 2) {
    intervals[kept++] = merged(intervals[i], intervals[i + 1]);
  }
  if (intervals.size() % 2 == 1) intervals[kept++] = intervals.back();
  intervals.resize(kept);
}

void drop_after(MetricColumns& columns, double after) {
  const auto end = std::ranges::find_if(columns.step, [&](double step) { return step > after; });
  // Rows with later steps are at the end: steps ascend between two starts.
  const auto kept = static_cast<std::size_t>(end - columns.step.begin());
  columns.step.resize(kept);
  columns.time.resize(kept);
  for (auto& values : columns.values) values.resize(kept);
}

}  // namespace

const std::vector<double>* MetricColumns::find(std::string_view name) const {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? nullptr : &values[static_cast<std::size_t>(found - names.begin())];
}

std::optional<double> MetricColumns::last(std::string_view name) const {
  const auto* column = find(name);
  if (!column) return std::nullopt;
  const auto found = std::find_if(column->rbegin(), column->rend(),
                                  [](double value) { return std::isfinite(value); });
  return found == column->rend() ? std::nullopt : std::optional(*found);
}

std::int64_t RunMetrics::last_step() const {
  double step = 0;
  if (!train.step.empty()) step = train.step.back();
  if (!eval.step.empty()) step = std::max(step, eval.step.back());
  return static_cast<std::int64_t>(step);
}

MetricsReader::MetricsReader(std::string path) : path_(std::move(path)) {}

bool MetricsReader::read_more() {
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return false;
    throw SystemError("cannot open " + path_, errno);
  }
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) throw SystemError("cannot read " + path_, errno);
  if (facts.st_size < offset_) {
    metrics_ = {};
    offset_ = 0;
  }
  bool found = false;
  std::string text;
  constexpr std::size_t kChunk = 1 << 20;
  for (;;) {
    const auto held = text.size();
    text.resize(held + kChunk);
    const auto got = ::pread(file.number(), text.data() + held, kChunk,
                             offset_ + static_cast<std::int64_t>(held));
    if (got < 0) throw SystemError("cannot read " + path_, errno);
    text.resize(held + static_cast<std::size_t>(got));
    std::string_view rest = text;
    for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      add(rest.substr(0, end));
      rest.remove_prefix(end + 1);
      found = true;
    }
    const auto read = text.size() - rest.size();
    offset_ += static_cast<std::int64_t>(read);
    if (got == 0) return found;
    text.erase(0, read);
  }
}

void MetricsReader::add(std::string_view line) {
  const FlatField* kind = line_.parse(line) ? line_.find("kind") : nullptr;
  if (!kind) {
    ++metrics_.num_invalid;
    return;
  }
  if (kind->text == "start") return restart();
  if (const auto* time = line_.find("time"); time && time->number > metrics_.last_time) {
    metrics_.last_time = time->number;
    if (!metrics_.sessions.empty()) metrics_.sessions.back().end = time->number;
  }
  if (kind->text == "train") return add_row(metrics_.train);
  if (kind->text == "rank") return add_rank();
  if (kind->text == "eval") return add_row(metrics_.eval);
  if (kind->text == "event") return add_event();
  if (kind->text == "bucket") return add_bucket();
  ++metrics_.num_invalid;
}

void MetricsReader::add_row(MetricColumns& columns) {
  std::size_t expected = 0;  // the writer keeps the order of names
  for (auto& values : columns.values) values.push_back(kNothing);
  columns.step.push_back(0);
  columns.time.push_back(0);
  for (const auto& field : line_.fields()) {
    if (field.name == "kind") continue;
    if (field.name == "step") {
      columns.step.back() = field.number;
    } else if (field.name == "time") {
      columns.time.back() = field.number;
    } else if (field.is_text) {
      if (field.name == "sample" && &columns == &metrics_.eval) {
        const auto step = static_cast<std::int64_t>(columns.step.back());
        metrics_.samples.push_back({step, unescaped(field.text)});
      }
    } else {
      if (expected >= columns.names.size() || columns.names[expected] != field.name) {
        const auto found = std::ranges::find(columns.names, field.name);
        expected = static_cast<std::size_t>(found - columns.names.begin());
        if (found == columns.names.end()) {
          columns.names.emplace_back(field.name);
          columns.values.emplace_back(columns.step.size(), kNothing);
        }
      }
      columns.values[expected++].back() = field.number;
    }
  }
}

void MetricsReader::add_rank() {
  Cursor cursor(line_.fields());
  RankInterval row;
  row.step = static_cast<std::int64_t>(cursor.number("step"));
  row.time = cursor.number("time");
  const auto rank = cursor.number("rank", -1);
  if (rank < 0 || rank >= static_cast<double>(kMaxRanks)) {
    ++metrics_.num_invalid;
    return;
  }
  row.rank = static_cast<int>(rank);
  row.host = static_cast<int>(cursor.number("host"));
  row.steps = static_cast<std::int64_t>(cursor.number("steps", 1));
  for (std::size_t field = 0; field < 5; ++field) {
    row.*kRankFields[field].field = cursor.number(kRankFields[field].name);
  }
  for (std::size_t part = 0; part < kNumStepParts; ++part) {
    row.split_ms[part] = cursor.number(part_names()[part]);
  }
  for (std::size_t field = 5; field < kRankFields.size(); ++field) {
    row.*kRankFields[field].field = cursor.number(kRankFields[field].name);
  }
  if (line_.find("gpu_memory_bytes")) {
    row.gpu = GpuFigures{.utilization = cursor.number("gpu_utilization"),
                         .memory_bytes = cursor.number("gpu_memory_bytes"),
                         .clock_mhz = cursor.number("gpu_clock_mhz")};
    if (line_.find("gpu_memory_clock_mhz")) {
      row.gpu->memory_clock_mhz = cursor.number("gpu_memory_clock_mhz");
    }
    if (line_.find("gpu_power_watts")) row.gpu->power_watts = cursor.number("gpu_power_watts");
  }
  if (line_.find("slowest_peer")) {
    row.slowest_peer = cursor.number("slowest_peer", -1);
    row.slowest_peer_mb_per_s = cursor.number("slowest_peer_mb_per_s");
    row.fastest_peer_mb_per_s = cursor.number("fastest_peer_mb_per_s");
  }
  if (metrics_.ranks.size() <= static_cast<std::size_t>(row.rank)) {
    metrics_.ranks.resize(static_cast<std::size_t>(row.rank) + 1);
  }
  auto& intervals = metrics_.ranks[static_cast<std::size_t>(row.rank)];
  intervals.push_back(row);
  if (intervals.size() >= 2 * kMaxIntervals) merge_pairs(intervals);
}

void MetricsReader::add_bucket() {
  Cursor cursor(line_.fields());
  const auto step = static_cast<std::int64_t>(cursor.number("step"));
  if (step != metrics_.buckets_step) metrics_.buckets.clear();
  metrics_.buckets_step = step;
  BucketFigures bucket;
  bucket.bucket = static_cast<int>(cursor.number("bucket"));
  bucket.bytes = cursor.number("bytes");
  bucket.ready_ms = cursor.number("ready_ms");
  bucket.launched_ms = cursor.number("launched_ms");
  bucket.all_in_ms = cursor.number("all_in_ms");
  bucket.done_ms = cursor.number("done_ms");
  bucket.gb_per_s = cursor.number("gb_per_s");
  metrics_.buckets.push_back(bucket);
}

void MetricsReader::add_event() {
  RunEvent event;
  for (const auto& field : line_.fields()) {
    if (field.name == "step") {
      event.step = static_cast<std::int64_t>(field.number);
    } else if (field.name == "time") {
      event.time = field.number;
    } else if (field.name == "event") {
      event.event = unescaped(field.text);
    } else if (field.is_text) {
      event.texts[std::string(field.name)] = unescaped(field.text);
    } else {
      event.numbers[std::string(field.name)] = field.number;
    }
  }
  metrics_.events.push_back(std::move(event));
}

void MetricsReader::restart() {
  const auto* after = line_.find("after");
  const double kept = after && !std::isnan(after->number) ? after->number : -1;
  const auto* time = line_.find("time");
  const double begin = time ? time->number : metrics_.last_time;
  metrics_.last_time = std::max(metrics_.last_time, begin);
  metrics_.sessions.push_back({begin, begin});
  drop_after(metrics_.train, kept);
  drop_after(metrics_.eval, kept);
  std::erase_if(metrics_.samples,
                [&](const SampleText& sample) { return static_cast<double>(sample.step) > kept; });
  for (auto& intervals : metrics_.ranks) {
    std::erase_if(intervals,
                  [&](const RankInterval& row) { return static_cast<double>(row.step) > kept; });
  }
}

}  // namespace lockstep
