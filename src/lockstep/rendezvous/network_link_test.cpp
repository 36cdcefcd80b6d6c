#include "lockstep/rendezvous/network_link.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/machine/cluster.h"
#include "lockstep/machine/links.h"

namespace lockstep {
namespace {

Cluster three_hosts() {
  Cluster cluster;
  cluster.hosts = {
      {.name = "a", .ranks = {0, 1}}, {.name = "b", .ranks = {2}}, {.name = "c", .ranks = {3}}};
  const auto link = [&](int first, int second, double latency, double rate, double back) {
    cluster.links.push_back({first, second, LinkClass::ethernet,
                             LinkFigures{.latency = latency,
                                         .bandwidth = rate,
                                         .back_bandwidth = back,
                                         .striped_bandwidth = rate}});
  };
  link(0, 1, 1e-3, 1e6, 1e6);  // inside a host
  link(0, 2, 20e-6, 1.2e9, 1.1e9);
  link(2, 3, 30e-6, 1.2e9, 1.2e9);
  return cluster;
}

TEST(NetworkLink, IsTheSlowestMeasuredLinkBetweenHosts) {
  const auto link = slowest_link_of(three_hosts());
  EXPECT_EQ(link.bandwidth, 1.1e9);
  EXPECT_EQ(link.latency, 30e-6);
  EXPECT_TRUE(link.is_measured);
  EXPECT_EQ(to_string(link), "30 us, 1.1 GB/s, measured");
}

TEST(NetworkLink, HasSeveralStripesIfALinkNeedsThem) {
  auto cluster = three_hosts();
  EXPECT_EQ(slowest_link_of(cluster).stripes, 1);
  cluster.links[2].measured->stripes = 4;
  cluster.links[2].measured->striped_bandwidth = 2.4e9;
  EXPECT_EQ(slowest_link_of(cluster).stripes, 4);
}

TEST(NetworkLink, IsAssumedIfNothingWasMeasured) {
  auto cluster = three_hosts();
  for (auto& link : cluster.links) link.measured = {};
  EXPECT_EQ(slowest_link_of(cluster), NetworkLink{});
  EXPECT_EQ(network_link(Environment{}), NetworkLink{});
  EXPECT_EQ(to_string(NetworkLink{}), "25 us, 1.25 GB/s, assumed");
}

TEST(NetworkLink, HasTheLowestClassOfTheLinksBetweenHosts) {
  auto cluster = three_hosts();
  for (auto& link : cluster.links) link.measured = {};
  cluster.links[1].link_class = LinkClass::nvlink;
  cluster.links[2].link_class = LinkClass::infiniband;
  EXPECT_EQ(slowest_link_of(cluster).link_class, LinkClass::infiniband);
  cluster.links[2].link_class = LinkClass::nvlink;
  EXPECT_EQ(slowest_link_of(cluster).link_class, LinkClass::nvlink) << "not that inside a host";
  EXPECT_FALSE(slowest_link_of(cluster).is_measured);
}

TEST(NetworkLink, IsReadFromTheFileOfBenchLink) {
  const auto path = "/tmp/lockstep-network-link-test-" + std::to_string(::getpid());
  write_cluster(path, three_hosts());
  const auto found = network_link(Environment{{"LOCKSTEP_LINKS", path}});
  EXPECT_NEAR(found.latency, 30e-6, 1e-12);
  EXPECT_NEAR(found.bandwidth, 1.1e9, 1);
  std::remove(path.c_str());
  EXPECT_THROW((void)network_link(Environment{{"LOCKSTEP_LINKS", path}}), Error);
}

}  // namespace
}  // namespace lockstep
