#include "lockstep/machine/cluster.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

Cluster two_hosts() {
  return {.hosts = {{.name = "a",
                     .address = "10.0.0.1",
                     .ranks = {0, 1},
                     .numa_nodes = {{0, 1}, {2, 3}},
                     .devices = {"NVIDIA H200", "NVIDIA H200"}},
                    {.name = "b", .address = "fe80::1%eth0", .ranks = {2}, .numa_nodes = {{0}}}},
          .links = {{.first = 0, .second = 1, .link_class = LinkClass::nvlink},
                    {.first = 1,
                     .second = 2,
                     .measured = LinkFigures{.latency = 0.000025,
                                             .bandwidth = 1.25e9,
                                             .back_bandwidth = 1e9,
                                             .stripes = 4,
                                             .striped_bandwidth = 2e9,
                                             .retransmits = 3}}}};
}

// Figures are compared with the precision of the file.
TEST(Cluster, AWrittenFileReadsBackAndCanBeEdited) {
  const auto path = "/tmp/lockstep-cluster-test-" + std::to_string(::getpid());
  write_cluster(path, two_hosts());
  auto found = read_cluster(path);
  ASSERT_EQ(found.links.size(), 2U);
  ASSERT_TRUE(found.links[1].measured);
  EXPECT_NEAR(found.links[1].measured->latency, 0.000025, 1e-15);
  found.links[1].measured->latency = 0.000025;
  EXPECT_EQ(found, two_hosts());

  auto text = to_json(found);
  const std::string from = "\"class\": \"nvlink\"";
  text.replace(text.find(from), from.size(), "\"class\": \"infiniband\"");
  EXPECT_EQ(cluster_from_json(text, "edited").link(1, 0).link_class, LinkClass::infiniband);
  std::remove(path.c_str());
}

TEST(Cluster, AFakedLayoutDecidesTheChunks) {
  const auto cluster = two_hosts();
  EXPECT_EQ(cluster.num_ranks(), 3);
  constexpr std::int64_t kCount = 16 << 20;
  EXPECT_EQ(chunk_bytes(cluster.link(0, 1), kCount, 4), 4U << 20);    // nvlink: 1 Mi elements
  EXPECT_EQ(chunk_bytes(cluster.link(0, 2), kCount, 4), 256U << 10);  // not listed: ethernet
  EXPECT_EQ(cluster.link(2, 0).link_class, LinkClass::ethernet);
  EXPECT_EQ(chunk_bytes(cluster.link(2, 1), kCount, 4),
            measured_chunk(std::size_t{kCount} * 4, 0.000025, 1e9));  // the slower direction
}

void expect_refused(const std::string& text, const std::string& words) {
  try {
    (void)cluster_from_json(text, "file.json");
    FAIL() << text;
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("file.json: ")) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

// The file of two hosts with `from` replaced by `to`.
void expect_refused(const std::string& from, const std::string& to, const std::string& words) {
  auto text = to_json(two_hosts());
  ASSERT_NE(text.find(from), std::string::npos) << from;
  text.replace(text.find(from), from.size(), to);
  expect_refused(text, words);
}

TEST(Cluster, InvalidFilesAreRefusedAndTheFieldIsNamed) {
  expect_refused("{", "the text is not JSON");
  expect_refused("lockstep-cluster", "lockstep-machine", "format is not \"lockstep-cluster\"");
  expect_refused("\"version\": 1", "\"version\": 2", "version is not");
  expect_refused("\"address\"", "\"adress\"", "unknown field \"adress\"");
  expect_refused("\"nvlink\"", "\"fast\"", "class of links is not one of");
  expect_refused("\"retransmits\": 3", "\"retransmits\": -3", "retransmits of links");
  expect_refused("\"stripes\": 4", "\"stripes\": 0", "stripes of links");
  expect_refused("\"bandwidth\": 1250000000.0", "\"bandwidth\": 0",
                 "bandwidth is not a number above 0");
  const std::string no_links = R"({"format": "lockstep-cluster", "version": 1, "links": [],)";
  const auto host = [](const std::string& ranks) {
    return R"("hosts": [{"name": "a", "address": "b", "numa_nodes": [], "devices": [], "ranks": )" +
           ranks + "}]}";
  };
  expect_refused(no_links + host("[0, 2]"), "all ranks from 0 on");
  expect_refused(no_links + host("[0, 0]"), "listed only once");
  expect_refused(no_links + host("[]"), "all ranks from 0 on");
  const std::string bad_link =
      R"({"format": "lockstep-cluster", "version": 1, "links": [{"ranks": [1, 0], "class": "nvlink"}],)";
  expect_refused(bad_link + host("[0, 1]"), "two ranks of hosts");
}

}  // namespace
}  // namespace lockstep
