#include "cli/top/view.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/json.h"
#include "lockstep/fabric/call.h"
#include "lockstep/launch/console_style.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/rank_list.h"

namespace lockstep::cli {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr seconds kLong{10};
constexpr seconds kWindow{10};

double in_seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// Four columns: "0.0s", "9.9s", "124s", "2.1h".
std::string short_time(nanoseconds time) {
  const double value = in_seconds(time);
  if (value < 9.95) return fmt::format("{:.1f}s", value);
  if (value < 999.5) return fmt::format("{:.0f}s", value);
  if (value < 99.5 * 60) return fmt::format("{:.0f}m", value / 60);
  return fmt::format("{:.1f}h", value / 3600);
}

std::string short_bytes(std::uint64_t bytes) {
  if (bytes == 0) return "-";
  const double value = static_cast<double>(bytes);
  return value < 999.5e6 ? fmt::format("{:.0f} MB", value / 1e6)
                         : fmt::format("{:.1f} GB", value / 1e9);
}

std::string clock_text(std::chrono::system_clock::duration time) {
  const auto whole = std::chrono::duration_cast<seconds>(time).count();
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string kind_of(const RankCall& call) {
  if (call.kind < 0 || call.kind >= kNumCollectives) return "call";
  return std::string(to_string(static_cast<Collective>(call.kind)));
}

std::string call_text(const RankState& rank) {
  if (!rank.call) return "-";
  auto text = fmt::format("{} {}", rank.call->number, kind_of(*rank.call));
  if (!rank.call->name.empty()) text += fmt::format(" \"{}\"", rank.call->name);
  if (!rank.call->has_ended) text += fmt::format(", {}", short_time(rank.call->age));
  return text;
}

std::string place_text(const RankState& rank) {
  if (rank.pid == 0) return rank.standing == RankStanding::absent ? "-" : "no init() yet";
  std::string text = rank.step || rank.part != StepPart::other ? part_in_words(rank.part)
                                                               : "before its first step";
  if (rank.bucket) text += fmt::format(", bucket {}", *rank.bucket);
  return text;
}

std::string standing_text(const RankState& rank) {
  if (rank.standing != RankStanding::ended) return to_string(rank.standing);
  const ExitStatus status(rank.status);
  if (const auto signal = status.signal()) return signal_name(*signal);
  return status.succeeded() ? "finished" : fmt::format("exit {}", *status.exit_code());
}

// Cut at `width` columns; the texts are ASCII.
std::string fitted(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width);
}

struct Widths {
  std::size_t host = 4;
  std::size_t place = 5;
};

Widths widths_of(const RunState& run) {
  Widths widths;
  for (const auto& rank : run.ranks) {
    widths.host = std::clamp<std::size_t>(rank.host.size(), widths.host, 16);
    widths.place = std::max(widths.place, place_text(rank).size());
  }
  return widths;
}

std::string row_text(const RankState& rank, const Widths& widths, std::optional<double> rate,
                     const TopStyle& style) {
  const auto text =
      fitted(fmt::format("{:>5}  {:<{}}  {:<8}  {:>8}  {:>7}  {:<{}}  {:>5}  {:>8}  {}", rank.rank,
                         fitted(printable(rank.host, false), widths.host), widths.host,
                         standing_text(rank), rank.step ? std::to_string(*rank.step) : "-",
                         rate ? fmt::format("{:.2f}", *rate) : "-", place_text(rank), widths.place,
                         short_time(rank.age), short_bytes(rank.memory_bytes),
                         printable(call_text(rank), false)),
             static_cast<std::size_t>(std::max(style.columns, 40)));
  if (!style.color || !is_suspicious(rank)) return text;
  const bool is_bad = rank.standing != RankStanding::running;
  return fmt::format("\x1b[{}m{}\x1b[0m", is_bad ? 31 : 33, text);
}

std::string title_text(const RunState& run, const TopStyle& style,
                       std::chrono::system_clock::time_point now) {
  int nodes = 0;
  for (const auto& rank : run.ranks) nodes = std::max(nodes, rank.node + 1);
  auto line = fmt::format("{}: {} rank{}{}", style.folder, run.ranks.size(),
                          run.ranks.size() == 1 ? "" : "s",
                          nodes > 1 ? fmt::format(" on {} nodes", nodes) : "");
  line += run.has_ended ? ", the run has ended; this is its last state"
                        : fmt::format(", running for {}", clock_text(now - run.started));
  if (run.round > 0) line += fmt::format(", restarts {}", run.round);
  return fitted(line, static_cast<std::size_t>(std::max(style.columns, 40))) + '\n' +
         fitted(printable(run.command, false),
                static_cast<std::size_t>(std::max(style.columns, 40))) +
         '\n';
}

}  // namespace

void StepRates::add(const RunState& run, std::chrono::steady_clock::time_point now) {
  if (!samples_.empty() && samples_.back().round != run.round) samples_.clear();
  while (samples_.size() > 1 && now - samples_.front().time > kWindow) samples_.pop_front();
  Sample sample{.time = now, .round = run.round, .steps = {}};
  for (const auto& rank : run.ranks) sample.steps.push_back(rank.step);
  samples_.push_back(std::move(sample));
}

std::vector<std::optional<double>> StepRates::rates() const {
  std::vector<std::optional<double>> rates;
  if (samples_.empty()) return rates;
  const auto& first = samples_.front();
  const auto& last = samples_.back();
  const double time = in_seconds(last.time - first.time);
  for (std::size_t i = 0; i < last.steps.size(); ++i) {
    rates.emplace_back();
    if (time < 0.9 || i >= first.steps.size() || !first.steps[i] || !last.steps[i]) continue;
    rates.back() = static_cast<double>(*last.steps[i] - *first.steps[i]) / time;
  }
  return rates;
}

bool is_suspicious(const RankState& rank) noexcept {
  if (rank.standing == RankStanding::ended) return rank.status != 0;
  if (rank.standing != RankStanding::running) return true;
  return rank.pid != 0 && rank.age > kLong;
}

std::string awaited_in_words(const RunState& run) {
  std::uint64_t newest = 0;
  for (const auto& rank : run.ranks) {
    if (!rank.call) return "";
    newest = std::max(newest, rank.call->number);
  }
  std::vector<int> late;
  std::uint64_t oldest = newest;
  bool wait = false;
  for (const auto& rank : run.ranks) {
    // A rank that waits in a call with a smaller number may be in another group.
    const bool is_elsewhere = rank.call->has_ended || rank.standing == RankStanding::stopped;
    if (rank.call->number < newest && is_elsewhere) {
      late.push_back(rank.rank);
      oldest = std::min(oldest, rank.call->number);
    } else if (!rank.call->has_ended && rank.call->age > seconds(1)) {
      wait = true;
    }
  }
  if (late.empty() || !wait || run.has_ended) return "";
  return fmt::format("rank{} {} {} in call {}; the others wait in call {}",
                     late.size() == 1 ? "" : "s", format_rank_list(late),
                     late.size() == 1 ? "is" : "are", oldest, newest);
}

std::string top_text(const RunState& run, const TopStyle& style,
                     std::chrono::system_clock::time_point now) {
  auto text = title_text(run, style, now);
  const auto widths = widths_of(run);
  text += fitted(fmt::format("{:>5}  {:<{}}  {:<8}  {:>8}  {:>7}  {:<{}}  {:>5}  {:>8}  {}", "rank",
                             "host", widths.host, "state", "step", "steps/s", "in", widths.place,
                             "for", "memory", "call"),
                 static_cast<std::size_t>(std::max(style.columns, 40))) +
          '\n';
  std::vector<const RankState*> shown;
  for (const auto& rank : run.ranks) shown.push_back(&rank);
  // Title, command, header, the line about waits and the line of those left out.
  const auto room = static_cast<std::size_t>(std::max(style.rows - 5, 1));
  if (shown.size() > room) {
    std::ranges::stable_sort(shown, [](const RankState* a, const RankState* b) {
      return is_suspicious(*a) > is_suspicious(*b);
    });
    shown.resize(room);
    std::ranges::sort(shown, {}, &RankState::rank);
  }
  for (const auto* rank : shown) {
    const auto index = static_cast<std::size_t>(rank->rank);
    const auto rate = index < style.rates.size() ? style.rates[index] : rank->steps_per_second;
    text += row_text(*rank, widths, rate, style) + '\n';
  }
  if (shown.size() < run.ranks.size()) {
    text += fmt::format("and {} more ranks\n", run.ranks.size() - shown.size());
  }
  if (const auto waits = awaited_in_words(run); !waits.empty()) text += waits + '\n';
  return text;
}

std::string top_json(const RunState& run, const std::string& folder) {
  using Json = nlohmann::ordered_json;
  const auto started = std::chrono::duration<double>(run.started.time_since_epoch()).count();
  Json json{{"format", "lockstep-top"}, {"version", 1},          {"run", folder},
            {"command", run.command},   {"started", started},    {"ended", run.has_ended},
            {"restarts", run.round},    {"ranks", Json::array()}};
  for (const auto& rank : run.ranks) {
    Json row{
        {"rank", rank.rank},
        {"node", rank.node},
        {"host", rank.host},
        {"state", to_string(rank.standing)},
        {"status", standing_text(rank)},
        {"pid", rank.pid},
        {"memory_bytes", rank.memory_bytes},
        {"step", rank.step ? Json(*rank.step) : Json(nullptr)},
        {"part", std::string(name_of(rank.part))},
        {"bucket", rank.bucket ? Json(*rank.bucket) : Json(nullptr)},
        {"seconds_in_part", in_seconds(rank.age)},
        {"seconds_in_step", in_seconds(rank.step_age)},
        {"steps_per_second", rank.steps_per_second ? Json(*rank.steps_per_second) : Json(nullptr)},
        {"call", nullptr}};
    if (rank.call) {
      row["call"] = {{"number", rank.call->number},
                     {"kind", kind_of(*rank.call)},
                     {"name", rank.call->name},
                     {"ended", rank.call->has_ended},
                     {"seconds", in_seconds(rank.call->age)}};
    }
    json["ranks"].push_back(std::move(row));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::cli
