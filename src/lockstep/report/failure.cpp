// The part of a page about a failure: which rank, its last output, and the last calls of every rank
// side by side.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/report/page_parts_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kShownCalls = 10;
constexpr std::size_t kShownRanks = 16;

std::string lines_html(const std::vector<std::string>& lines) {
  std::string html;
  for (const auto& line : lines) html += escaped(line) + "\n";
  return html;
}

std::string culprit_html(const RankEnd& rank) {
  auto html =
      fmt::format(R"(<p class="culprit"><b>Rank {}</b> on {} ended first, with <b>{}</b>{}{}.</p>)",
                  rank.rank, escaped(rank.host), escaped(rank.how),
                  rank.where.empty() ? "" : ", at " + escaped(rank.where),
                  rank.note.empty() ? "" : " (" + escaped(rank.note) + ")");
  if (!rank.uncaught.empty()) {
    html += fmt::format("<h4>Uncaught exception</h4><pre>{}</pre>", escaped(rank.uncaught));
  }
  if (!rank.last_lines.empty()) {
    html += fmt::format("<h4>Last lines of its output</h4><div class=\"tail\"><pre>{}</pre></div>",
                        lines_html(rank.last_lines));
  }
  if (!rank.stack.empty()) {
    html += fmt::format("<details><summary>C++ stack, {} frames</summary><pre>{}</pre></details>",
                        rank.stack.size(), lines_html(rank.stack));
  }
  if (!rank.log.empty()) html += fmt::format(R"(<p class="path">{}</p>)", escaped(rank.log));
  return html;
}

std::string rank_table(const EndRecord& end) {
  std::string rows;
  for (const auto& rank : end.ranks) {
    const bool is_culprit = end.culprit && end.culprit->rank == rank.rank;
    rows += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        is_culprit ? R"( class="bad")" : "", rank.rank, escaped(rank.host),
                        escaped(rank.how),
                        is_culprit         ? "ended first"
                        : rank.told_to_end ? "ended by the launcher"
                        : rank.failed      ? "ended after the first"
                                           : "ended by itself");
  }
  return fmt::format(
      R"(<details><summary>How all {} ranks ended</summary><div class="scroll"><table><thead><tr><th>rank</th><th>host</th><th>status</th><th></th></tr></thead><tbody>
{}</tbody></table></div></details>
)",
      end.ranks.size(), rows);
}

std::string call_cell(const RecordedCall& call) {
  if (call.is_complete) {
    return fmt::format(
        R"(<td class="done"><span>{}</span><small>complete{}</small></td>)", escaped(call.call),
        call.took_ms > 0 ? ", " + figure_text(call.took_ms, Unit::milliseconds) : "");
  }
  return fmt::format(R"(<td class="open"><span>{}</span><small>waiting for {}</small></td>)",
                     escaped(call.call), figure_text(call.entered_ms_ago, Unit::milliseconds));
}

// A rank without the call. If it left no record, a call that is complete elsewhere had it as well.
std::string missing_cell(const FlightRecord* record, std::uint64_t number, bool is_open_elsewhere) {
  if (!record && !is_open_elsewhere) {
    return R"(<td class="old"><small>complete elsewhere</small></td>)";
  }
  if (!record) {
    return R"(<td class="gone"><span>missing</span><small>the process ended without a record</small></td>)";
  }
  if (!record->calls.empty() && number < record->calls.front().number) {
    return R"(<td class="old"><small>older than its record</small></td>)";
  }
  return R"(<td class="missing"><span>not called</span><small>the other ranks wait for it</small></td>)";
}

bool is_open(const std::vector<const FlightRecord*>& records, std::uint64_t number) {
  return std::ranges::any_of(records, [&](const FlightRecord* record) {
    const auto call = std::ranges::find(record->calls, number, &RecordedCall::number);
    return call != record->calls.end() && !call->is_complete;
  });
}

std::string calls_table(const std::string& group, const std::vector<const FlightRecord*>& records,
                        std::vector<int> ranks) {
  std::uint64_t newest = 0;
  std::uint64_t oldest = ~std::uint64_t{0};
  for (const auto* record : records) {
    if (record->calls.empty()) continue;
    newest = std::max(newest, record->calls.back().number);
    oldest = std::min(oldest, record->calls.back().number);
  }
  if (newest == 0) return {};
  // From the newest call of the rank that is behind the most.
  const auto first = std::max<std::uint64_t>(
      1,
      std::max(newest > kShownCalls ? newest - kShownCalls + 1 : 1, oldest > 3 ? oldest - 3 : 1));
  std::string note;
  if (ranks.size() > kShownRanks) {
    note = fmt::format(" The first {} of {} ranks.", kShownRanks, ranks.size());
    ranks.resize(kShownRanks);
  }
  std::string head = "<th>call</th>";
  for (const int rank : ranks) head += fmt::format("<th>rank {}</th>", rank);
  std::string rows;
  for (auto number = first; number <= newest; ++number) {
    rows += fmt::format("<tr><th>{}</th>", number);
    for (const int rank : ranks) {
      const auto record =
          std::ranges::find(records, rank, [](const auto* one) { return one->rank; });
      if (record == records.end()) {
        rows += missing_cell(nullptr, number, is_open(records, number));
        continue;
      }
      const auto call = std::ranges::find((*record)->calls, number, &RecordedCall::number);
      rows +=
          call == (*record)->calls.end() ? missing_cell(*record, number, true) : call_cell(*call);
    }
    rows += "</tr>\n";
  }
  return fmt::format(
      R"(<h4>Last calls of every rank, group {}</h4><p>Calls have the same number on every rank.{}</p><div class="scroll"><table class="calls"><thead><tr>{}</tr></thead><tbody>
{}</tbody></table></div>
)",
      escaped(group), note, head, rows);
}

std::string calls_html(const LaunchRecord& launch) {
  std::map<std::string, std::vector<const FlightRecord*>> groups;
  std::set<int> ranks;
  for (const auto& flight : launch.flights) {
    groups[flight.group].push_back(&flight);
    ranks.insert(flight.rank);
  }
  if (launch.end) {
    for (const auto& rank : launch.end->ranks) ranks.insert(rank.rank);
  }
  std::string html;
  for (const auto& [group, records] : groups) {
    html += calls_table(group, records, {ranks.begin(), ranks.end()});
  }
  return html;
}

}  // namespace

std::string failure_html(const RunRecord& run) {
  const bool failed = run.outcome == RunOutcome::failed || run.outcome == RunOutcome::killed;
  if (!failed || run.launches.empty()) return {};
  const auto& launch = run.launches.back();
  std::string html;
  if (launch.end) {
    if (!launch.end->reason.empty()) html += fmt::format("<p>{}</p>", escaped(launch.end->reason));
    if (launch.end->culprit) html += culprit_html(*launch.end->culprit);
  }
  html += calls_html(launch);
  if (launch.end && !launch.end->ranks.empty()) html += rank_table(*launch.end);
  if (html.empty()) return {};
  return fmt::format(
      R"(<section class="card failure" id="failure"><h2>What happened</h2>{}</section>
)",
      html);
}

}  // namespace lockstep
