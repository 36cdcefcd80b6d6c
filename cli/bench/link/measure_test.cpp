// Both ends as threads, over loopback.
#include "cli/bench/link/measure.h"

#include <gtest/gtest.h>

#include <array>
#include <future>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

const HandshakeContext kContext{"bench link", 0};

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

TEST(MeasureLink, BothEndsGetTheSamePlausibleFigures) {
  const auto secret = Secret::random();
  auto listener = Listener::tcp("127.0.0.1");
  auto first = std::async(std::launch::async, [&] {
    auto sockets = accept_link(listener, secret, kContext, soon());
    return measure_link(sockets, LinkSide::first, std::chrono::milliseconds(20), soon());
  });
  auto sockets = connect_link(listener.endpoint(), secret, kContext, soon());
  const auto found = measure_link(sockets, LinkSide::second, std::chrono::milliseconds(20), soon());
  EXPECT_EQ(first.get(), found);
  EXPECT_GT(found.latency, 0);
  EXPECT_LT(found.latency, 10);
  for (const double rate : {found.bandwidth, found.back_bandwidth, found.striped_bandwidth}) {
    EXPECT_GT(rate, 1e5);
    EXPECT_LT(rate, 1e13);
  }
  EXPECT_EQ(found.stripes, kStripes);
  EXPECT_GE(found.retransmits, 0);
  EXPECT_FALSE(congestion_control(sockets[0]).empty());
}

TEST(MeasureLink, AProcessWithoutTheSecretIsRefusedAndTheOtherEndWaitsForTheRightOne) {
  const auto secret = Secret::random();
  auto listener = Listener::tcp("127.0.0.1");
  auto first = std::async(std::launch::async,
                          [&] { return accept_link(listener, secret, kContext, soon()).size(); });
  EXPECT_THROW((void)connect_link(listener.endpoint(), Secret::random(), kContext, soon()), Error);
  EXPECT_EQ(connect_link(listener.endpoint(), secret, kContext, soon()).size(), kStripes);
  EXPECT_EQ(first.get(), static_cast<std::size_t>(kStripes));
}

TEST(MeasureLink, AnEndThatClosesIsAnError) {
  const auto secret = Secret::random();
  auto listener = Listener::tcp("127.0.0.1");
  auto first = std::async(std::launch::async, [&] {
    (void)accept_link(listener, secret, kContext, soon());  // closed at once
  });
  auto sockets = connect_link(listener.endpoint(), secret, kContext, soon());
  EXPECT_THROW((void)measure_link(sockets, LinkSide::second, std::chrono::milliseconds(20), soon()),
               SystemError);
  first.get();
}

}  // namespace
}  // namespace lockstep::cli
