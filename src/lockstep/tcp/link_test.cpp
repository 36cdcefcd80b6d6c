// One link by itself, whose peer is authenticated but faulty.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "lockstep/tcp/test_bare_link_internal.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

constexpr TransferKey kKey{5, 1};
constexpr std::byte kGuard{7};
constexpr const char* kUnexpected = "it sent data that this rank does not expect";

// Memory with more around it that must not be written.
struct Guarded {
  explicit Guarded(std::size_t count) : memory(count + 2 * kMargin, kGuard) {}
  [[nodiscard]] std::span<std::byte> bytes() {
    return std::span(memory).subspan(kMargin, memory.size() - 2 * kMargin);
  }
  [[nodiscard]] bool is_intact() const {
    const auto is_guard = [](std::byte each) { return each == kGuard; };
    return std::all_of(memory.begin(), memory.begin() + kMargin, is_guard) &&
           std::all_of(memory.end() - kMargin, memory.end(), is_guard);
  }
  static constexpr std::ptrdiff_t kMargin = 4096;
  Bytes memory;
};

Bytes ones(std::size_t count) { return Bytes(count, std::byte{1}); }

TEST(LinkOfAFaultyPeer, BytesOutsideATransferAreRefusedBeforeTheyAreWritten) {
  constexpr std::uint64_t kSize = 1000;
  constexpr auto kLast = ~std::uint64_t{0};
  for (const auto& [offset, length] :
       std::vector<std::pair<std::uint64_t, std::uint32_t>>{{0, 1001},
                                                            {1, 1000},
                                                            {999, 2},
                                                            {1000, 1},
                                                            {1001, 1},
                                                            {0, 0},
                                                            {2000, 10},
                                                            {kLast, 2},
                                                            {kLast - 9, 20},
                                                            {kLast - 999, 1000},
                                                            {std::uint64_t{1} << 32, 10}}) {
    SCOPED_TRACE(std::to_string(offset) + " + " + std::to_string(length));
    BareLink peer;
    Guarded memory(kSize);
    Network::Word received = 0;
    peer.expect(kKey, memory.bytes(), received);
    peer.arrive(0, {.end = 1, .key = kKey, .offset = offset, .length = length});
    EXPECT_EQ(peer.link.loss(), kUnexpected);
    EXPECT_EQ(received, 0U);
    EXPECT_EQ(std::count(memory.memory.begin(), memory.memory.end(), kGuard),
              static_cast<std::ptrdiff_t>(memory.memory.size()));
  }
}

TEST(LinkOfAFaultyPeer, BytesThatHaveArrivedAreNotOverwritten) {
  for (const auto& [offset, length] : std::vector<std::pair<std::uint64_t, std::uint32_t>>{
           {0, 10}, {99, 1}, {50, 100}, {250, 60}, {399, 1}, {200, 200}, {100, 300}}) {
    SCOPED_TRACE(std::to_string(offset) + " + " + std::to_string(length));
    BareLink peer;
    Guarded memory(1000);
    Network::Word received = 0;
    peer.expect(kKey, memory.bytes(), received);
    peer.arrive(0, {.end = 1, .key = kKey, .offset = 0, .length = 100});
    peer.arrive(0, ones(100));
    peer.arrive(0, {.end = 1, .key = kKey, .offset = 300, .length = 100});
    peer.arrive(0, ones(100));
    ASSERT_FALSE(peer.link.is_lost());
    EXPECT_EQ(received, 100U);
    peer.arrive(0, {.end = 1, .key = kKey, .offset = offset, .length = length});
    EXPECT_EQ(peer.link.loss(), kUnexpected);
  }
}

// Two frames of the same bytes, both of which have begun: the second would overwrite what the first
// has announced.
TEST(LinkOfAFaultyPeer, TwoStripesDoNotBringTheSameBytes) {
  BareLink peer(2);
  Guarded memory(1000);
  Network::Word received = 0;
  peer.expect(kKey, memory.bytes(), received);
  peer.arrive(0, {.end = 1, .key = kKey, .offset = 0, .length = 200});
  peer.arrive(0, ones(100));
  peer.arrive(1, {.end = 1, .key = kKey, .offset = 200, .length = 100});
  ASSERT_FALSE(peer.link.is_lost()) << "these are others";
  peer.arrive(1, ones(100));
  peer.arrive(1, {.end = 1, .key = kKey, .offset = 199, .length = 1});
  EXPECT_EQ(peer.link.loss(), kUnexpected);
}

// A rank that waits for them later would wait for ever.
TEST(LinkOfAFaultyPeer, DataOfATransferThatWasNeverExpectedAreRefused) {
  BareLink peer;
  peer.arrive(0, {.end = 1, .key = kKey, .offset = 0, .length = 10});
  EXPECT_EQ(peer.link.loss(), kUnexpected);
}

// The end of a dropped frame arrives when a transfer of its name is expected, which is smaller.
TEST(LinkOfAFaultyPeer, ADroppedFrameStaysDroppedIfItsTransferIsExpectedMeanwhile) {
  BareLink peer;
  peer.forget(kKey);
  peer.arrive(0, {.end = 1, .key = kKey, .offset = 3000, .length = 2000});
  peer.arrive(0, ones(1000));
  Guarded memory(10);
  Network::Word received = 0;
  peer.expect(kKey, memory.bytes(), received);
  peer.arrive(0, ones(1000));
  EXPECT_EQ(received, 0U);
  EXPECT_TRUE(memory.is_intact());
  peer.arrive(0, {.end = 1, .key = kKey, .offset = 0, .length = 10});
  peer.arrive(0, ones(10));
  EXPECT_EQ(received, 10U) << "the stream is intact; " << peer.link.loss();
  EXPECT_TRUE(memory.is_intact());
}

// The transfer is forgotten in the middle of a frame, and a smaller one of its name expected.
TEST(LinkOfAFaultyPeer, TheRestOfAFrameIsDroppedIfItsTransferIsAnotherOneThen) {
  BareLink peer;
  Guarded large(5000);
  Guarded small(10);
  Network::Word received = 0;
  peer.expect(kKey, large.bytes(), received);
  peer.arrive(0, {.end = 1, .key = kKey, .offset = 3000, .length = 2000});
  peer.arrive(0, ones(1000));
  peer.forget(kKey);
  peer.expect(kKey, small.bytes(), received);
  peer.arrive(0, ones(1000));
  EXPECT_EQ(std::count(large.memory.begin(), large.memory.end(), std::byte{1}), 1000);
  EXPECT_EQ(std::count(small.memory.begin(), small.memory.end(), std::byte{1}), 0);
  EXPECT_EQ(received, 0U);
  EXPECT_FALSE(peer.link.is_lost());
}

// Most of these frames are near the limits of the transfer, or near what has arrived.
TEST(LinkOfAFaultyPeer, NoSequenceOfFramesWritesOutsideTheTransfersThatAreExpected) {
  std::mt19937_64 random(3);
  int num_lost = 0;
  for (int i = 0; i < 300; ++i) {
    BareLink peer(2);
    std::vector<Guarded> memories;  // they outlive the frames, whatever is forgotten
    for (int j = 0; j < 8; ++j) memories.emplace_back(1 + random() % 3000);
    Network::Word received = 0;
    for (int frame = 0; frame < 12 && !peer.link.is_lost(); ++frame) {
      auto bytes = memories[random() % memories.size()].bytes();
      if (random() % 3 == 0) peer.forget(kKey);
      if (random() % 3 == 0) {
        received = 0;
        peer.expect(kKey, bytes, received);
      }
      const std::array<std::uint64_t, 5> near{0, received, bytes.size(), bytes.size() / 2, ~0ULL};
      const auto offset = near.at(random() % near.size()) + (random() % 4 == 0 ? random() % 5 : 0);
      const auto length = static_cast<std::uint32_t>(random() % (random() % 2 == 0 ? 4000 : 50));
      const int stripe = static_cast<int>(random() % 2);
      if (peer.missing(stripe) > 0) {
        peer.arrive(stripe, ones(peer.missing(stripe)));
        continue;
      }
      peer.arrive(stripe, {.end = 1, .key = kKey, .offset = offset, .length = length});
      if (!peer.link.is_lost()) peer.arrive(stripe, ones(random() % (length + 1)));
    }
    num_lost += peer.link.is_lost() ? 1 : 0;
    for (const auto& memory : memories) ASSERT_TRUE(memory.is_intact()) << "sequence " << i;
  }
  EXPECT_GT(num_lost, 30);
  EXPECT_LT(num_lost, 300);
}

}  // namespace
}  // namespace lockstep
