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
      fmt::format("{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>7}{:>9}", size_in_words(row.timed.bytes),
                  microseconds(ours.p50), microseconds(ours.p99), microseconds(ours.max),
                  gigabytes(rates.algorithm_bandwidth), gigabytes(rates.bus_bandwidth),
                  rates.bound > 0 ? fmt::format("{:.0f}%", 100 * rates.bound_share) : "-",
                  microseconds(ours.hot));
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
std::string numbers_in_words(const std::vector<int>& numbers) {
  const bool contiguous = numbers.back() - numbers.front() + 1 == std::ssize(numbers);
  if (numbers.size() > 2 && contiguous) {
    return fmt::format("{}-{}", numbers.front(), numbers.back());
  }
  return fmt::format("{}", fmt::join(numbers, ","));
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
        numbers_in_words(processors[first]));
    if (text.size() + ranks.size() > 80) return text + ", ...";
    text += ranks;
    first = last + 1;
  }
  return text;
}

// "h0 with ranks 0-3, h1 with ranks 4,6", cut to one line.
std::string hosts_text(const std::vector<CommHost>& hosts) {
  std::string text;
  for (const auto& host : hosts) {
    const auto one = fmt::format("{}{} with rank{} {}", text.empty() ? "" : ", ", host.name,
                                 host.ranks.size() == 1 ? "" : "s", numbers_in_words(host.ranks));
    if (text.size() + one.size() > 85) return text + ", ...";
    text += one;
  }
  return text;
}

}  // namespace

std::string ranks_in_words(const CommReport& report) {
  const bool one_host = report.request.on_one_host;
  const auto places =
      one_host ? report.machine.cpu.num_cores() : static_cast<int>(report.hosts.size());
  return fmt::format("{} rank{} on {} {}{}", report.request.ranks,
                     report.request.ranks == 1 ? "" : "s", places, one_host ? "core" : "host",
                     places == 1 ? "" : "s");
}

std::string header_text(const CommReport& report) {
  const auto& request = report.request;
  const auto cache = report.machine.last_level_cache();
  auto text =
      fmt::format("lockstep bench comm: {}, one thread each, {} build{}\n", ranks_in_words(report),
                  report.build, report.build == "Release" ? "" : ": slower than Release");
  if (!request.on_one_host) text += fmt::format("hosts: {}\n", hosts_text(report.hosts));
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
  text += fmt::format("\n{} round{}. Each time is the maximum over all ranks. algbw, busbw: GB/s. ",
                      report.rounds, report.rounds == 1 ? "" : "s");
  text +=
      report.request.on_one_host
          ? fmt::format(
                "bound: percent of\nthe rate of in-place adds of all ranks, timed before "
                "each row (at most {} GB/s). hot: p50 on\none buffer, as in OSU's "
                "benchmarks.",
                gigabytes(fastest_add))
          : "bound: only\nwhere all ranks share one memory. hot: p50 on one buffer, as in OSU's "
            "benchmarks.";
  text += report.names.size() > 1 ? " ratio: p50 of the peer / p50 of lockstep.\n" : "\n";
  return text;
}

}  // namespace lockstep::cli
