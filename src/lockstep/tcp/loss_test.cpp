// What a lost connection is called.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/tcp/loss_internal.h"
#include "lockstep/tcp/test_bare_link_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

constexpr const char* kProcess = "its machine answers, its process does not";
constexpr const char* kMachine = "its machine does not answer";

TEST(Loss, ATimeoutOfTheKernelIsDescribedByWhatWasSeenBefore) {
  EXPECT_EQ(silence_in_words(true), kProcess);
  EXPECT_EQ(silence_in_words(false), kMachine);
  EXPECT_EQ(error_in_words(ETIMEDOUT, true), kProcess);
  EXPECT_EQ(error_in_words(ETIMEDOUT, false), kMachine);
}

TEST(Loss, AMachineThatCannotBeReachedDoesNotAnswerWhateverWasSeenBefore) {
  for (const bool acknowledges : {true, false}) {
    EXPECT_EQ(error_in_words(EHOSTUNREACH, acknowledges),
              std::string(kMachine) + ": No route to host");
    EXPECT_EQ(error_in_words(ENETUNREACH, acknowledges),
              std::string(kMachine) + ": Network is unreachable");
  }
}

TEST(Loss, AnyOtherErrorIsGivenInTheWordsOfTheKernel) {
  EXPECT_EQ(error_in_words(EBADMSG, true), "the connection to it was lost: Bad message");
}

TEST(Loss, APeerHasEndedIfAllItsConnectionsEndAtOnce) {
  for (const bool has_answered : {false, true}) {  // perhaps an earlier ping
    EXPECT_EQ(ends_in_words(3, 3, 0ms, has_answered), "");
    EXPECT_EQ(ends_in_words(1, 1, 0ms, has_answered), "");
    EXPECT_EQ(ends_in_words(2, 3, 0ms, has_answered), std::nullopt) << "the third one may follow";
    EXPECT_EQ(ends_in_words(3, 3, kEndingTime - 1ms, has_answered), "");
  }
}

TEST(Loss, APeerThatAnswersThroughNoneOfTheOthersMayHaveEndedWheneverTheyEnd) {
  EXPECT_EQ(ends_in_words(1, 3, 100 * kEndingTime, false), std::nullopt) << "the heartbeat decides";
  EXPECT_EQ(ends_in_words(3, 3, 100 * kEndingTime, false), "");
}

TEST(Loss, AConnectionThatEndsWhileThePeerAnswersThroughAnotherOneWasReset) {
  EXPECT_EQ(ends_in_words(1, 3, 2 * kEndingTime - 1ms, true), std::nullopt);
  for (const auto& why :
       {ends_in_words(1, 3, 2 * kEndingTime, true), ends_in_words(3, 3, kEndingTime, true)}) {
    EXPECT_NE(why.value_or("").find("a connection to it was reset"), std::string::npos);
  }
}

// The pings that the peer finds in a connection of data.
int num_pings(BareLink& peer, int channel) {
  const auto taken = peer.take(channel);
  int count = 0;
  for (auto rest = std::span(taken); rest.size() >= kDataHeaderBytes;
       rest = rest.subspan(kDataHeaderBytes)) {
    const auto header = try_decode_header(rest.first<kDataHeaderBytes>());
    const auto ping = static_cast<std::uint32_t>(LinkNote::ping);
    if (header && header->end == kLinkEnd && header->key.part == ping) ++count;
  }
  return count;
}

// Not at once: a ping makes the kernel of a process that has ended drop what it still has to send.
TEST(LossOfALink, TheOtherConnectionsArePingedOnceIfTheyStayOpen) {
  BareLink peer(2);
  peer.end(1);
  EXPECT_EQ(num_pings(peer, 2), 0);
  EXPECT_EQ(peer.take(0).size(), 0U);
  for (const int pings : {1, 0}) {
    peer.link.watch_ends(Link::Clock::now() + kEndingTime);
    EXPECT_EQ(num_pings(peer, 2), pings);
    EXPECT_EQ(peer.take(0).size(),
              pings == 0 ? 0U : sizeof(std::uint64_t) + 1 + kFrameOverheadBytes);
  }
  peer.end(2);
  EXPECT_FALSE(peer.link.is_lost());
  peer.end(0);
  EXPECT_TRUE(peer.link.is_lost());
  EXPECT_EQ(peer.link.loss(), "") << "it has ended";
}

// As after a restart of the machine, if packets are lost too.
TEST(LossOfALink, ConnectionsThatEndLateWithoutAnAnswerAreThoseOfAProcessThatHasEnded) {
  BareLink peer;
  peer.end(0);
  peer.link.watch_ends(Link::Clock::now() + 100 * kEndingTime);
  EXPECT_FALSE(peer.link.is_lost()) << "the other one may follow";
  peer.end(1);
  EXPECT_TRUE(peer.link.is_lost());
  EXPECT_EQ(peer.link.loss(), "");
}

TEST(LossOfALink, AnAnswerToThePingShowsThatTheProcessHasNotEnded) {
  BareLink peer;
  const DataHeader pong{.end = kLinkEnd, .key = {0, static_cast<std::uint32_t>(LinkNote::pong)}};
  peer.arrive(0, pong);
  peer.end(0);
  peer.link.watch_ends(Link::Clock::now() + 2 * kEndingTime);
  EXPECT_FALSE(peer.link.is_lost()) << "the answer came before";
  peer.arrive(0, pong);
  peer.link.watch_ends(Link::Clock::now() + 2 * kEndingTime);
  EXPECT_NE(peer.link.loss().find("a connection to it was reset"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
