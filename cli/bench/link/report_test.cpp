#include "cli/bench/link/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace lockstep::cli {
namespace {

// Displayed characters: bytes of UTF-8 that begin one.
std::size_t width_of(const std::string& line) {
  return static_cast<std::size_t>(std::ranges::count_if(
      line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Cluster fast_and_slow() {
  return {
      .hosts = {{.name = "node0", .address = "10.0.0.1", .ranks = {0, 1}, .numa_nodes = {{0, 1}}},
                {.name = std::string(200, 'n'), .address = "10.0.0.2", .ranks = {2}}},
      .links = {{.first = 0,
                 .second = 1,
                 .measured = LinkFigures{.latency = 12e-6,
                                         .bandwidth = 3.5e9,
                                         .back_bandwidth = 3.4e9,
                                         .stripes = 4,
                                         .striped_bandwidth = 3.5e9}},
                {.first = 0,
                 .second = 2,
                 .measured = LinkFigures{.latency = 212.5e-6,
                                         .bandwidth = 118e6,
                                         .back_bandwidth = 117e6,
                                         .stripes = 4,
                                         .striped_bandwidth = 200e6,
                                         .retransmits = 1'234'567}}}};
}

TEST(LinkReport, TheTableNamesTheSlowestLinkAndFitsOnAScreen) {
  const auto text = link_table(fast_and_slow(), "cubic");
  EXPECT_NE(text.find("ranks 0 and 2 with 117 MB/s"), std::string::npos) << text;
  EXPECT_NE(text.find("congestion control cubic"), std::string::npos) << text;
  EXPECT_NE(text.find("212 µs"), std::string::npos) << text;
  EXPECT_NE(text.find("1234567"), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), 100U) << line;
}

TEST(LinkReport, APairOfSeveralConnectionsIsAdvisedOnlyWhereTheyAreFaster) {
  std::istringstream lines(link_table(fast_and_slow(), ""));
  std::string fast;
  std::string slow;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("   0    1")) fast = line;
    if (line.starts_with("   0    2")) slow = line;
  }
  EXPECT_TRUE(fast.ends_with(" 1")) << fast;
  EXPECT_TRUE(slow.ends_with(" 4")) << slow;
}

TEST(LinkReport, TheMatricesHaveBothDirections) {
  const auto svg = link_svg(fast_and_slow());
  for (const auto* figure : {"3.5 GB/s", "3.4 GB/s", "118 MB/s", "117 MB/s", "200 MB/s"}) {
    EXPECT_NE(svg.find(figure), std::string::npos) << figure;
  }
}

}  // namespace
}  // namespace lockstep::cli
