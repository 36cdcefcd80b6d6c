#include "cli/bench/link/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "lockstep/report/figure_text.h"
#include "lockstep/report/matrix_chart.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kBucketElements = (25LL << 20) / 4;  // of Ddp, float32

int host_of(const Cluster& cluster, int rank) {
  for (std::size_t host = 0; host < cluster.hosts.size(); ++host) {
    if (std::ranges::count(cluster.hosts[host].ranks, rank) > 0) return static_cast<int>(host);
  }
  return 0;
}

std::string host_line(const Cluster& cluster, std::size_t index) {
  const auto& host = cluster.hosts[index];
  std::size_t processors = 0;
  for (const auto& node : host.numa_nodes) processors += node.size();
  auto line = fmt::format("host {}: {} at {}, {} {}; {} processor{} in {} NUMA node{}", index,
                          host.name, host.address, host.ranks.size() == 1 ? "rank" : "ranks",
                          fmt::join(host.ranks, ", "), processors, processors == 1 ? "" : "s",
                          host.numa_nodes.size(), host.numa_nodes.size() == 1 ? "" : "s");
  if (!host.devices.empty()) line += fmt::format("; {}", fmt::join(host.devices, ", "));
  constexpr std::size_t kMost = 100;
  return line.size() <= kMost ? line : line.substr(0, kMost - 1) + "…";
}

std::string link_line(const Cluster& cluster, const ClusterLink& link) {
  const auto& measured = *link.measured;
  const bool same = host_of(cluster, link.first) == host_of(cluster, link.second);
  return fmt::format(
      "{:>4} {:>4}  {:<5} {:>9} {:>10} {:>10} {:>10} {:>7}  {:<10} {:>8} {:>6}\n", link.first,
      link.second,
      same ? "same"
           : fmt::format("{}-{}", host_of(cluster, link.first), host_of(cluster, link.second)),
      figure_text(measured.latency, Unit::seconds),
      figure_text(measured.bandwidth, Unit::bytes_rate),
      figure_text(measured.back_bandwidth, Unit::bytes_rate),
      figure_text(measured.striped_bandwidth, Unit::bytes_rate), measured.retransmits,
      to_string(link.link_class),
      figure_text(static_cast<double>(chunk_bytes(link, kBucketElements, 4)), Unit::bytes),
      advised_stripes(measured.bandwidth, measured.striped_bandwidth, measured.stripes));
}

double slower_rate(const ClusterLink& link) {
  return std::min(link.measured->bandwidth, link.measured->back_bandwidth);
}

// The figure of each pair in both directions.
template <typename Figure>
MatrixChart matrix_of(const Cluster& cluster, std::string title, Unit unit, Figure figure) {
  MatrixChart matrix{.title = std::move(title),
                     .note = "from the rank of the row to the rank of the column",
                     .unit = unit};
  const int size = cluster.num_ranks();
  matrix.values.assign(static_cast<std::size_t>(size),
                       std::vector<double>(static_cast<std::size_t>(size),
                                           std::numeric_limits<double>::quiet_NaN()));
  for (int rank = 0; rank < size; ++rank) matrix.names.push_back(fmt::format("rank {}", rank));
  for (const auto& link : cluster.links) {
    if (!link.measured) continue;
    const auto first = static_cast<std::size_t>(link.first);
    const auto second = static_cast<std::size_t>(link.second);
    matrix.values[first][second] = figure(*link.measured, /*back=*/false);
    matrix.values[second][first] = figure(*link.measured, /*back=*/true);
  }
  return matrix;
}

}  // namespace

std::string link_table(const Cluster& cluster, std::string_view congestion_control) {
  std::string text;
  for (std::size_t host = 0; host < cluster.hosts.size(); ++host) {
    text += host_line(cluster, host) + "\n";
  }
  text += fmt::format("TCP, congestion control {}\n\n",
                      congestion_control.empty() ? "unknown" : congestion_control);
  text +=
      "   ranks  hosts   latency       rate       back    striped retrans  class         chunk  "
      "conns\n";
  const ClusterLink* slowest = nullptr;
  for (const auto& link : cluster.links) {
    if (!link.measured) continue;
    text += link_line(cluster, link);
    if (slowest == nullptr || slower_rate(link) < slower_rate(*slowest)) slowest = &link;
  }
  if (slowest == nullptr) return text;
  text += fmt::format(
      "\nThe slowest link, ranks {} and {} with {}, bounds every collective over all ranks.\n"
      "rate: first to second rank by one connection; striped: by {}. chunk, conns: advised size "
      "of\n"
      "chunks of an array of 25 MiB, and number of connections per pair.\n",
      slowest->first, slowest->second, figure_text(slower_rate(*slowest), Unit::bytes_rate),
      slowest->measured->stripes);
  return text;
}

std::string link_svg(const Cluster& cluster) {
  return matrix_svg_file(
      {matrix_of(cluster, "Rate by one connection", Unit::bytes_rate,
                 [](const LinkFigures& figures, bool back) {
                   return back ? figures.back_bandwidth : figures.bandwidth;
                 }),
       matrix_of(cluster, "Rate by several connections, from the lower to the higher rank",
                 Unit::bytes_rate,
                 [](const LinkFigures& figures, bool back) {
                   return back ? std::numeric_limits<double>::quiet_NaN()
                               : figures.striped_bandwidth;
                 }),
       matrix_of(cluster, "Latency", Unit::seconds,
                 [](const LinkFigures& figures, bool) { return figures.latency; })});
}

}  // namespace lockstep::cli
