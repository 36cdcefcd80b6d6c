#include "lockstep/net/interfaces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const std::vector<InterfaceAddress> kMachine{
    {"lo", "127.0.0.1"},     {"lo", "::1"},       {"eth0", "fe80::1%eth0"}, {"eth0", "192.168.1.7"},
    {"eth0", "2001:db8::7"}, {"ib0", "10.1.2.3"}, {"ib0", "fe80::9%ib0"},   {"ib1", "10.1.3.3"},
};

std::string chosen(const std::string& wanted, const std::string& like = "10.0.0.1") {
  return choose_address(wanted, kMachine, like);
}

std::string refusal(const std::string& wanted) {
  try {
    (void)chosen(wanted);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Interfaces, ANameMeansItsAddressOfTheSameIpVersion) {
  EXPECT_EQ(chosen("ib0"), "10.1.2.3");
  EXPECT_EQ(chosen("eth0"), "192.168.1.7");
  EXPECT_EQ(chosen("eth0", "fd00::1"), "2001:db8::7");  // not the link-local one
  EXPECT_EQ(chosen("ib0", "fd00::1"), "fe80::9%ib0");
  EXPECT_EQ(chosen("ib1", "fd00::1"), "10.1.3.3");
}

TEST(Interfaces, AnAddressMeansItself) {
  EXPECT_EQ(chosen("10.1.3.3"), "10.1.3.3");
  EXPECT_EQ(chosen("2001:DB8:0::7"), "2001:db8::7");
  EXPECT_EQ(chosen("fe80::1"), "fe80::1%eth0");
  EXPECT_EQ(chosen("fe80::1%eth0"), "fe80::1%eth0");
  EXPECT_NE(refusal("fe80::1%ib0"), "");
}

TEST(Interfaces, ANetworkMeansTheAddressInIt) {
  EXPECT_EQ(chosen("10.1.3.0/24"), "10.1.3.3");
  EXPECT_EQ(chosen("10.1.2.2/31"), "10.1.2.3");
  EXPECT_EQ(chosen("10.1.0.0/16"), "10.1.2.3");  // the first of two
  EXPECT_EQ(chosen("0.0.0.0/0"), "127.0.0.1");
  EXPECT_EQ(chosen("2001:db8::/32"), "2001:db8::7");
  EXPECT_NE(refusal("10.1.2.0/31"), "");
  EXPECT_NE(refusal("10.1.2.3/33"), "");
  EXPECT_NE(refusal("10.1.2.3/"), "");
  EXPECT_NE(refusal("/8"), "");
}

TEST(Interfaces, ARefusalListsWhatThereIs) {
  const auto text = refusal("eth7");
  EXPECT_NE(text.find("no interface of this machine is \"eth7\""), std::string::npos) << text;
  EXPECT_NE(text.find("ib0 10.1.2.3, ib0 fe80::9%ib0, ib1 10.1.3.3"), std::string::npos) << text;
}

TEST(Interfaces, ThisMachineHasALoopbackAddress) {
  const auto all = interface_addresses();
  EXPECT_TRUE(
      std::ranges::any_of(all, [](const auto& each) { return each.address == "127.0.0.1"; }));
  EXPECT_EQ(choose_address("127.0.0.0/8", all, "127.0.0.1"), "127.0.0.1");
}

TEST(Interfaces, LoopbackAddressesAreKnown) {
  for (const char* host : {"localhost", "127.0.0.1", "127.0.1.1", "::1", "0:0::1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"", "node0", "128.0.0.1", "::2", "fe80::1%lo", "12.7.0.0"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(Interfaces, ALinkLocalAddressGetsTheScopeOfTheMachineThatUsesIt) {
  EXPECT_EQ(rescope("fe80::5%eth0", "fe80::6%ens3"), "fe80::5%ens3");
  EXPECT_EQ(rescope("fe80::5", "fe80::6%ens3"), "fe80::5%ens3");
  EXPECT_EQ(rescope("fe80::5%eth0", "10.0.0.1"), "fe80::5%eth0");
  EXPECT_EQ(rescope("fd00::5", "fe80::6%ens3"), "fd00::5");
  EXPECT_EQ(rescope("10.0.0.2", "fe80::6%ens3"), "10.0.0.2");
  EXPECT_EQ(rescope("node0", "fe80::6%ens3"), "node0");
}

}  // namespace
}  // namespace lockstep
