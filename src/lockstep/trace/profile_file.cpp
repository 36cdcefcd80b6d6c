#include "lockstep/trace/profile_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/trace/step_split.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string in_quotes(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The thread of the viewer. Operators of the training thread are below its parts of the step.
int line_of(Lane lane, int index) {
  switch (lane) {
    case Lane::step:
      return 1;
    case Lane::compute:
      return 2;
    case Lane::communication:
      return 3;
    case Lane::operators:
      return 20 + index;
    case Lane::loader:
      return 100 + index;
    case Lane::checkpoint:
      return 200;
    case Lane::bucket:
      return 1000 + index;
  }
  return 0;
}

int line_of(const ProfileEvent& event) {
  const bool has_lines =
      event.lane == Lane::operators || event.lane == Lane::loader || event.lane == Lane::bucket;
  return line_of(event.lane, has_lines ? event.index : 0);
}

std::string line_name(const ProfileEvent& event) {
  switch (event.lane) {
    case Lane::step:
      return "step";
    case Lane::compute:
      return "compute";
    case Lane::communication:
      return "communication";
    case Lane::operators:
      return fmt::format("operators {}", event.index);
    case Lane::loader:
      return fmt::format("loader {}", event.index);
    case Lane::checkpoint:
      return "checkpoint writer";
    case Lane::bucket:
      return fmt::format("bucket {}", event.index);
  }
  return "";
}

std::string name_of(const ProfileEvent& event, const RankProfile& rank) {
  if (event.name != 0) return rank.names[event.name];
  switch (event.kind) {
    case EventKind::step:
      return fmt::format("step {}", event.step);
    case EventKind::part:
      return std::string(lockstep::name_of(
          static_cast<StepPart>(std::clamp<int>(event.index, 0, kNumStepParts - 1))));
    case EventKind::bucket_ready:
      return "ready";
    case EventKind::bucket_wait:
      return "wait for ranks";
    case EventKind::bucket_reduce:
      return "reduce";
    case EventKind::data_wait:
      return "wait for batch";
    case EventKind::data_read:
      return "read batch";
    case EventKind::checkpoint_stage:
      return "copy state";
    case EventKind::checkpoint_write:
      return "write checkpoint";
    default:
      return "span";
  }
}

// The events of a rank by line and begin, so that those of a line follow each other or are nested:
// the viewer drops a span that overlaps another one partly. Such overlaps are errors of clocks, far
// below a microsecond.
std::vector<ProfileEvent> nested(std::vector<ProfileEvent> events) {
  std::ranges::stable_sort(events, [](const ProfileEvent& a, const ProfileEvent& b) {
    return std::tuple(line_of(a), a.begin_ns, -a.end_ns) <
           std::tuple(line_of(b), b.begin_ns, -b.end_ns);
  });
  std::vector<const ProfileEvent*> open;  // outermost first
  for (auto& event : events) {
    if (event.kind == EventKind::counter) continue;
    while (!open.empty() &&
           (line_of(*open.back()) != line_of(event) || open.back()->end_ns <= event.begin_ns)) {
      open.pop_back();
    }
    if (!open.empty() && event.end_ns > open.back()->end_ns) {
      const bool follows =
          open.back()->end_ns - event.begin_ns < event.end_ns - open.back()->end_ns;
      (follows ? event.begin_ns : event.end_ns) = open.back()->end_ns;
      if (follows) open.pop_back();
    }
    open.push_back(&event);
  }
  return events;
}

class ProfileWriter {
 public:
  ProfileWriter(std::ostream& file, std::span<const RankProfile> ranks) : file_(file) {
    for (const auto& rank : ranks) {
      for (const auto& event : rank.events) start_ = std::min(start_, event.begin_ns);
    }
  }

  void name_lines(const RankProfile& rank) {
    meta(rank.rank, 0, "process_name", fmt::format("rank {} ({})", rank.rank, rank.host));
    line(fmt::format(
        R"({{"ph":"M","pid":{0},"name":"process_sort_index","args":{{"sort_index":{0}}}}})",
        rank.rank));
    std::map<int, std::string> names;
    for (const auto& event : rank.events) {
      if (event.kind != EventKind::counter) names.try_emplace(line_of(event), line_name(event));
    }
    for (const auto& [number, name] : names) {
      meta(rank.rank, number, "thread_name", name);
      line(fmt::format(
          R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
          rank.rank, number, number));
    }
  }

  void add(const ProfileEvent& event, const RankProfile& rank) {
    const auto name = in_quotes(name_of(event, rank));
    if (event.kind == EventKind::counter) {
      line(fmt::format(R"({{"ph":"C","pid":{},"ts":{:.3f},"name":{},"args":{{"value":{}}}}})",
                       rank.rank, time(event.begin_ns), name,
                       std::isfinite(event.value) ? event.value : 0.0));
      return;
    }
    auto arguments = fmt::format(R"("step":{})", event.step);
    if (event.bytes > 0) arguments += fmt::format(R"(,"bytes":{})", event.bytes);
    if (event.kind == EventKind::bucket_reduce && event.end_ns > event.begin_ns) {
      arguments +=
          fmt::format(R"(,"GB/s":{:.3f})", static_cast<double>(event.bytes) /
                                               static_cast<double>(event.end_ns - event.begin_ns));
    }
    line(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"args":{{{}}}}})",
        rank.rank, line_of(event), time(event.begin_ns),
        1e-3 * static_cast<double>(std::max<std::int64_t>(event.end_ns - event.begin_ns - 1, 0)),
        name, arguments));
  }

  void arrow(int from, std::int64_t from_ns, int to, std::int64_t to_ns, int bucket) {
    const auto number = line_of(Lane::bucket, bucket);
    ++arrows_;
    line(fmt::format(
        R"({{"ph":"s","id":{},"pid":{},"tid":{},"ts":{:.3f},"cat":"late","name":"enters last"}})",
        arrows_, from, number, time(from_ns)));
    line(fmt::format(
        R"({{"ph":"f","bp":"e","id":{},"pid":{},"tid":{},"ts":{:.3f},"cat":"late","name":"enters last"}})",
        arrows_, to, number, time(to_ns)));
  }

 private:
  void meta(int rank, int number, std::string_view kind, const std::string& name) {
    line(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}})", rank,
                     number, kind, in_quotes(name)));
  }
  void line(const std::string& text) {
    file_ << (is_first_ ? "\n" : ",\n") << text;
    is_first_ = false;
  }
  [[nodiscard]] double time(std::int64_t at) const {
    return 1e-3 * static_cast<double>(at - start_);
  }

  std::ostream& file_;
  std::int64_t start_ = INT64_MAX;
  std::int64_t arrows_ = 0;
  bool is_first_ = true;
};

// When a rank entered the reduction of a bucket, and when it saw that all ranks had.
struct Entry {
  int rank = 0;
  std::int64_t entered_ns = INT64_MAX;
  std::int64_t all_in_ns = 0;
  bool waited = false;
};

void draw_arrows(ProfileWriter& writer, std::span<const RankProfile> ranks) {
  std::map<std::pair<std::int64_t, int>, std::vector<Entry>> reductions;  // by step and bucket
  for (const auto& rank : ranks) {
    std::map<std::pair<std::int64_t, int>, Entry> own;
    for (const auto& event : rank.events) {
      const bool waits = event.kind == EventKind::bucket_wait;
      if (!waits && event.kind != EventKind::bucket_reduce) continue;
      auto& entry = own[{event.step, event.index}];
      entry.rank = rank.rank;
      entry.entered_ns = std::min(entry.entered_ns, event.begin_ns);
      if (waits) entry.all_in_ns = event.end_ns;
      entry.waited = entry.waited || waits;
    }
    for (const auto& [key, entry] : own) reductions[key].push_back(entry);
  }
  for (const auto& [key, entries] : reductions) {
    const auto last = std::ranges::max(entries, {}, &Entry::entered_ns);
    for (const auto& entry : entries) {
      if (entry.rank == last.rank || !entry.waited || entry.entered_ns >= last.entered_ns) continue;
      writer.arrow(last.rank, last.entered_ns, entry.rank,
                   std::max(entry.all_in_ns, last.entered_ns), key.second);
    }
  }
}

}  // namespace

void write_profile(std::ostream& file, std::span<const RankProfile> ranks,
                   const ProfileFacts& facts) {
  std::int64_t lost = 0;
  std::int64_t error = 0;
  for (const auto& rank : ranks) {
    lost += rank.num_lost;
    error = std::max(error, rank.clock_error_ns);
  }
  const Json other{{"format", "lockstep-profile"},
                   {"version", 1},
                   {"world", facts.world},
                   {"first_step", facts.window.first},
                   {"last_step", facts.window.last},
                   {"clock_error_us", 1e-3 * static_cast<double>(error)},
                   {"lost_events", lost},
                   {"missing_ranks", facts.missing}};
  file << R"({"displayTimeUnit":"ms","otherData":)" << other.dump() << R"(,"traceEvents":[)";
  ProfileWriter writer(file, ranks);
  for (const auto& rank : ranks) {
    writer.name_lines(rank);
    for (const auto& event : nested(rank.events)) writer.add(event, rank);
  }
  draw_arrows(writer, ranks);
  file << "\n]}\n";
}

}  // namespace lockstep
