// The table of report.h. Bandwidths are in GB/s (10^9), times in microseconds.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/bench/comm/buffer_plan.h"
#include "cli/bench/comm/report.h"

namespace lockstep::cli {
namespace {

// Three significant digits, in at most eight columns: 0.33, 26.1, 61234.
std::string microseconds(double seconds) {
  const double value = seconds * 1e6;
  if (value < 9.995) return fmt::format("{:.2f}", value);
  return value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string gigabytes(double bytes_per_second) {
  const double value = bytes_per_second * 1e-9;
  return value < 99.95 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

std::string times(double ratio) {
  return ratio < 9.95 ? fmt::format("{:.1f}x", ratio) : fmt::format("{:.0f}x", ratio);
}

std::string group_title(const CommCase& timed) {
  return fmt::format("{}{}, {}, {} memory", to_string(timed.op), reduces(timed.op) ? " (sum)" : "",
                     to_string(timed.dtype), to_string(timed.memory));
}

std::string column_titles(const CommReport& report) {
  auto line = fmt::format("{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>7}{:>9}", "size", "p50 us", "p99 us",
                          "max us", "algbw", "busbw", "bound", "hot us");
  for (std::size_t peer = 1; peer < report.names.size(); ++peer) {
    line += fmt::format("{:>9}{:>7}", report.names[peer] + " us", "ratio");
  }
  return line + '\n';
}

std::string row_line(const CommRow& row, int ranks) {
  const auto& ours = row.backends.front().value();
  const auto rates = rates_of(row, ranks);
  auto line =
      fmt::format("{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>6.0f}%{:>9}", size_in_words(row.timed.bytes),
                  microseconds(ours.p50), microseconds(ours.p99), microseconds(ours.max),
                  gigabytes(rates.algorithm_bandwidth), gigabytes(rates.bus_bandwidth),
                  100 * rates.bound_share, microseconds(ours.hot));
  for (std::size_t peer = 1; peer < row.backends.size(); ++peer) {
    const auto& theirs = row.backends[peer];
    line += fmt::format("{:>9}{:>7}", theirs ? microseconds(theirs->p50) : "-",
                        theirs ? times(theirs->p50 / ours.p50) : "-");
  }
  return line + '\n';
}

bool same_group(const CommCase& a, const CommCase& b) {
  return a.op == b.op && a.dtype == b.dtype && a.memory == b.memory;
}

// "0", "0-3", "0,2,4".
std::string processors_in_words(const std::vector<int>& processors) {
  const bool contiguous = processors.back() - processors.front() + 1 == std::ssize(processors);
  if (processors.size() > 2 && contiguous) {
    return fmt::format("{}-{}", processors.front(), processors.back());
  }
  return fmt::format("{}", fmt::join(processors, ","));
}

// "rank 0 on 0, ranks 1-3 on 1", cut to one line.
std::string processors_text(const CommRequest& request) {
  std::string text;
  const auto& processors = request.processors;
  for (std::size_t first = 0; first < processors.size();) {
    auto last = first;
    while (last + 1 < processors.size() && processors[last + 1] == processors[first]) ++last;
    const auto ranks = fmt::format(
        "{}{} on {}", first > 0 ? ", " : "",
        first == last ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, last),
        processors_in_words(processors[first]));
    if (text.size() + ranks.size() > 80) return text + ", ...";
    text += ranks;
    first = last + 1;
  }
  return text;
}

}  // namespace

std::string header_text(const CommReport& report) {
  const auto& request = report.request;
  const auto cache = report.machine.last_level_cache();
  auto text =
      fmt::format("lockstep bench comm: {} rank{} on {} core{}, one thread each, {} build{}\n",
                  request.ranks, request.ranks == 1 ? "" : "s", report.machine.cpu.num_cores(),
                  report.machine.cpu.num_cores() == 1 ? "" : "s", report.build,
                  report.build == "Release" ? "" : ": slower than Release");
  text += fmt::format("processors: {}\n", processors_text(request));
  text +=
      fmt::format("buffers: rotate through {} per rank (last-level cache {}); limit {} per rank\n",
                  size_in_words(request.rotation_bytes),
                  cache > 0 ? size_in_words(cache) : "unknown", size_in_words(kMostBytesPerRank));
  if (report.load) {
    text += fmt::format("load average of the minute before the start: {:.1f}{}\n", *report.load,
                        *report.load > 0.5 ? "; other processes use this machine too" : "");
  }
  return text;
}

std::string table_text(const CommReport& report) {
  std::string text;
  for (std::size_t backend = 0; backend < report.names.size(); ++backend) {
    text += fmt::format("{}: {}\n", report.names[backend], report.abouts[backend]);
  }
  double fastest_add = 0;
  const CommCase* group = nullptr;
  for (const auto& row : report.rows) {
    if (group == nullptr || !same_group(*group, row.timed)) {
      text += fmt::format("\n{}\n{}", group_title(row.timed), column_titles(report));
    }
    group = &row.timed;
    text += row_line(row, report.request.ranks);
    fastest_add = std::max(fastest_add, row.backends.front().value().add_bytes_per_second);
  }
  text += fmt::format(
      "\n{} round{}. Each time is the maximum over all ranks. algbw, busbw: GB/s. bound: percent "
      "of\n"
      "the rate of in-place adds of all ranks, timed before each row (at most {} GB/s). hot: p50 "
      "on\n"
      "one buffer, as in OSU's benchmarks.{}\n",
      report.rounds, report.rounds == 1 ? "" : "s", gigabytes(fastest_add),
      report.names.size() > 1 ? " ratio: p50 of the peer / p50 of lockstep." : "");
  return text;
}

}  // namespace lockstep::cli
