#include "cli/bench/comm/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "lockstep/base/json.h"

namespace lockstep::cli {
namespace {

// Two sizes in both kinds of memory, lockstep and two peers; MPI does not support one case.
CommReport example() {
  CommReport report;
  report.request.ranks = 2;
  for (const auto memory : {MemoryKind::registered, MemoryKind::ordinary}) {
    for (const std::size_t bytes : {1024U, 1U << 20}) {
      report.request.cases.push_back({.bytes = bytes, .memory = memory});
    }
  }
  report.request.rotation_bytes = 64 << 20;
  report.request.processors = {{0}, {1}};
  report.machine = {.cpu = {.nodes = {{{{{0}}, {{1}}}}}},
                    .caches = {{.level = 3, .bytes = 32 << 20}}};
  report.load = 0.1;
  report.hosts = {{.name = "here", .ranks = {0, 1}}};
  report.build = "Release";
  report.names = {"shm", "gloo", "mpi"};
  report.abouts = {"lockstep 1", "Gloo 2", "Open MPI 3"};
  const CommSamples small{.cold = {1e-6}, .hot = {0.5e-6}, .add_bytes_per_second = 100e9};
  const CommSamples large{.cold = {50e-6}, .hot = {40e-6}, .add_bytes_per_second = 100e9};
  const CommSamples slow{.cold = {200e-6}, .hot = {200e-6}};
  report.rows = rows_of(report.request, {{{.samples = {small, large, small, large}}},
                                         {{.samples = {slow, slow}}},
                                         {{.samples = {small, std::nullopt}}}});
  return report;
}

TEST(BenchCommReport, APercentileIsAValueThatOccurred) {
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({1, 2, 3}, 1), 3);
  EXPECT_EQ(percentile({7}, 0.99), 7);
}

TEST(BenchCommReport, RoundsAreCombinedByTheirMediansAndTheMaximum) {
  const auto figures = combine_rounds({{.cold = {1, 2, 30}, .hot = {1}},
                                       {.cold = {5, 5, 5}, .hot = {3}},
                                       {.cold = {3, 4, 9}, .hot = {2}}});
  EXPECT_EQ(figures.round_p50, (std::vector<double>{2, 5, 4}));
  EXPECT_EQ(figures.p50, 4);
  EXPECT_EQ(figures.p99, 9);
  EXPECT_EQ(figures.max, 30);
  EXPECT_EQ(figures.hot, 2);
  EXPECT_EQ(figures.iterations, 9);
}

// Four ranks on two hosts: no in-place adds, so no bound.
CommReport over_hosts() {
  CommReport report;
  report.request = {.ranks = 4,
                    .cases = {{.bytes = 1024}, {.bytes = 1 << 20}},
                    .on_one_host = false,
                    .processors = {{0}, {1}, {0}, {1}}};
  report.hosts = {{.name = "h0", .ranks = {0, 1}}, {.name = "h1", .ranks = {2, 3}}};
  report.build = "Release";
  report.names = {"hierarchical"};
  report.abouts = {"lockstep 1"};
  const CommSamples samples{.cold = {1e-3}, .hot = {1e-3}};
  report.rows = rows_of(report.request, {{{.samples = {samples, samples}}}});
  return report;
}

TEST(BenchCommReport, OfSeveralHostsNamesThemAndHasNoBound) {
  const auto report = over_hosts();
  const auto header = header_text(report);
  EXPECT_NE(header.find("bench comm: 4 ranks on 2 hosts,"), std::string::npos) << header;
  EXPECT_NE(header.find("hosts: h0 with ranks 0,1, h1 with ranks 2,3\n"), std::string::npos);
  const auto table = table_text(report);
  EXPECT_EQ(table.find('%'), std::string::npos) << table;
  EXPECT_NE(table.find("bound: only\nwhere all ranks share one memory"), std::string::npos);
  const auto json = nlohmann::json::parse(json_text(report));
  EXPECT_EQ(json["hosts"][1]["ranks"], (std::vector{2, 3}));
  EXPECT_TRUE(json["cores"].is_null());
  for (const auto* key : {"in_place_add", "bound_us", "bound_share"}) {
    EXPECT_TRUE(json["rows"][0].at(key).is_null()) << key;
  }
  EXPECT_DOUBLE_EQ(json["rows"][1]["backends"]["hierarchical"]["p50_us"], 1000);
  const auto svg = svg_text(report);
  EXPECT_NE(svg.find("4 ranks on 2 hosts"), std::string::npos);
  EXPECT_EQ(svg.find("bound by in-place add"), std::string::npos);
  for (const auto* word : {"nan", "inf"}) {
    EXPECT_EQ(svg.find(word), std::string::npos);
    EXPECT_EQ(table.find(word), std::string::npos);
  }
}

TEST(BenchCommReport, RatesFollowTheTwoSRule) {
  const auto report = example();
  const auto rates = rates_of(report.rows[1], 2);
  EXPECT_DOUBLE_EQ(rates.algorithm_bandwidth, (1 << 20) / 50e-6);
  EXPECT_DOUBLE_EQ(rates.bus_bandwidth, rates.algorithm_bandwidth);
  EXPECT_DOUBLE_EQ(rates.bound, 2.0 * 2 * (1 << 20) / 100e9);
  EXPECT_DOUBLE_EQ(rates.bound_share, rates.bound / 50e-6);
}

TEST(BenchCommReport, BothKindsOfMemoryAreComparedWithThePeersOrdinaryMemory) {
  const auto report = example();
  ASSERT_EQ(report.rows.size(), 4U);
  for (const auto& row : report.rows) EXPECT_EQ(row.backends[1]->p50, 200e-6);
  EXPECT_EQ(report.rows[0].backends[2]->p50, 1e-6);
  EXPECT_EQ(report.rows[2].backends[2]->p50, 1e-6);
  EXPECT_FALSE(report.rows[1].backends[2]);
}

TEST(BenchCommReport, TheTableFitsAHundredColumnsAndShowsRatios) {
  auto report = example();
  report.rows[1].backends[0]->max = 12.345678;  // seconds
  std::istringstream text(header_text(report) + table_text(report));
  int groups = 0;
  bool has_ratio = false;
  for (std::string line; std::getline(text, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    groups += line.starts_with("all_reduce (sum), float32") ? 1 : 0;
    has_ratio = has_ratio || line.find("200x") != std::string::npos;
  }
  EXPECT_EQ(groups, 2);
  EXPECT_TRUE(has_ratio);
}

TEST(BenchCommReport, TheHeaderNamesTheProcessorsOfEachRank) {
  auto report = example();
  EXPECT_NE(header_text(report).find("processors: rank 0 on 0, rank 1 on 1\n"), std::string::npos);
  report.request.processors = {{0}, {0}, {0}, {1, 3}, {4, 5, 6}};
  EXPECT_NE(header_text(report).find("ranks 0-2 on 0, rank 3 on 1,3, rank 4 on 4-6\n"),
            std::string::npos);
}

TEST(BenchCommReport, TheHeaderWarnsOfABuildThatIsNotRelease) {
  auto report = example();
  report.build = "Debug";
  EXPECT_NE(header_text(report).find("Debug build: slower than Release"), std::string::npos);
}

TEST(BenchCommReport, JsonHoldsEveryFigureAndNullForAnUnsupportedCase) {
  const auto json = nlohmann::json::parse(json_text(example()));
  EXPECT_EQ(json["schema"], "lockstep-bench-comm-2");
  EXPECT_EQ(json["backends"]["mpi"], "Open MPI 3");
  EXPECT_EQ(json["cores"], 2);
  EXPECT_EQ(json["hosts"][0]["name"], "here");
  ASSERT_EQ(json["rows"].size(), 4U);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["memory"], "registered");
  EXPECT_DOUBLE_EQ(row["backends"]["shm"]["p50_us"], 1);
  EXPECT_DOUBLE_EQ(row["backends"]["gloo"]["ratio"], 200);
  EXPECT_TRUE(json["rows"][1]["backends"]["mpi"].is_null());
}

TEST(BenchCommReport, TheChartHasOneLinePerBackendAndKindOfMemoryAndTheBound) {
  const auto svg = svg_text(example());
  std::size_t lines = 0;
  for (auto at = svg.find("<path class=\"line"); at != std::string::npos;
       at = svg.find("<path class=\"line", at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 5U);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(BenchCommReport, AChartOfOneSizeHasFiniteCoordinates) {
  auto report = example();
  report.rows.resize(1);
  const auto svg = svg_text(report);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
