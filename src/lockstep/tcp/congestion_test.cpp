#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "lockstep/net/listener.h"
#include "lockstep/tcp/congestion_internal.h"
#include "lockstep/testing/soon.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""us;

std::string name_of(int descriptor) {
  std::array<char, 32> name{};
  socklen_t size = name.size() - 1;
  EXPECT_EQ(::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

TEST(Congestion, OnlyBbrWithShortRoundTripsIsReplaced) {
  EXPECT_FALSE(is_suited("bbr", 20us));
  EXPECT_FALSE(is_suited("bbr2", 2ms));
  EXPECT_TRUE(is_suited("bbr", 30ms));
  for (const auto* const kept : {"cubic", "reno", "dctcp", ""}) {
    EXPECT_TRUE(is_suited(kept, 20us)) << kept;
  }
}

// On loopback, whose round trips are short, from both sides. `preset` is what this machine has, or
// BBR if this process may choose it.
void expect_no_bbr(const std::string& preset) {
  auto listener = Listener::tcp("127.0.0.1");
  (void)::setsockopt(listener.number(), IPPROTO_TCP, TCP_CONGESTION, preset.data(),
                     static_cast<socklen_t>(preset.size()));
  const auto own = name_of(listener.number());
  EXPECT_EQ(set_congestion_control(listener.number()), own);
  const auto client = Socket::connect(listener.endpoint(), testing::soon(), set_congestion_control);
  const auto server = listener.accept(testing::soon());
  for (const auto* const each : {&client, &server}) {
    settle_congestion_control(each->number(), own);
    const bool is_bbr = name_of(each->number()).starts_with("bbr");
    EXPECT_FALSE(is_bbr);
  }
  if (!own.starts_with("bbr")) {
    EXPECT_EQ(name_of(server.number()), own);
  }
}

TEST(Congestion, ConnectionsOfOneMachineDoNotUseBbr) {
  const auto preset = name_of(Listener::tcp("127.0.0.1").number());
  expect_no_bbr(preset);
  expect_no_bbr("bbr");
  expect_no_bbr("reno");
}

}  // namespace
}  // namespace lockstep
