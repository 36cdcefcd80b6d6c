// One link by itself: in which order its groups send. Counted in frames, because how long one takes
// depends on the network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/tcp/test_bare_link_internal.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

// The ends of the frames in what the peer has received through a connection of data.
std::vector<std::uint64_t> ends_in(std::span<const std::byte> stream) {
  std::vector<std::uint64_t> ends;
  while (stream.size() >= kDataHeaderBytes) {
    const auto header = try_decode_header(stream.first<kDataHeaderBytes>());
    if (!header) ADD_FAILURE() << "no header after " << ends.size() << " frames";
    if (!header) break;
    ends.push_back(header->end);
    stream = stream.subspan(std::min(stream.size(), kDataHeaderBytes + header->length));
  }
  return ends;
}

void append_sent(BareLink& peer, Bytes& stream) {
  const auto more = peer.take(1);
  stream.insert(stream.end(), more.begin(), more.end());
}

TEST(TurnsOfGroups, ASmallTransferWaitsForAtMostOneFrameOfEachOtherGroup) {
  constexpr std::uint64_t kSmall = 3;
  const Bytes large(8 * kMaxDataBytes);
  const Bytes small(100);
  for (const auto& others :
       std::vector<std::vector<std::uint64_t>>{{1}, {5}, {1, 5}, {1, 2, 4, 5}}) {
    SCOPED_TRACE(::testing::PrintToString(others));
    BareLink peer;
    Network::Word sent = 0;
    for (const auto end : others) {
      peer.link.send(end, {.to = end, .key = {1, 0}, .bytes = large, .sent = &sent});
    }
    Bytes stream;
    for (; ends_in(stream).size() <= 2 * others.size(); peer.link.flush())
      append_sent(peer, stream);
    append_sent(peer, stream);
    // The last of these has begun, but is not sent: all others wait for its end.
    const auto begun = ends_in(stream).size();
    ASSERT_LT(sent, begun * kMaxDataBytes);
    peer.link.send(kSmall, {.to = kSmall, .key = {1, 0}, .bytes = small, .sent = &sent});
    for (; sent < others.size() * large.size() + small.size(); peer.link.flush())
      append_sent(peer, stream);
    append_sent(peer, stream);
    const auto ends = ends_in(stream);
    const auto found = std::find(ends.begin(), ends.end(), kSmall);
    ASSERT_NE(found, ends.end());
    const auto turns = static_cast<std::size_t>(found - ends.begin()) - begun;
    EXPECT_LT(turns, others.size());
  }
}

// Blocks of one transfer that wait for room in the socket need fewer system calls together.
TEST(TurnsOfGroups, BlocksThatWaitShareFrames) {
  constexpr std::size_t kBlock = kMaxDataBytes / 4;
  BareLink peer;
  Network::Word sent = 0;
  const Bytes transfer(16 * kBlock);
  const Bytes other(kBlock);
  for (std::size_t offset = 0; offset < transfer.size(); offset += kBlock) {
    peer.link.send(1, {.to = 1,
                       .key = {1, 0},
                       .offset = offset,
                       .bytes = std::span(transfer).subspan(offset, kBlock),
                       .sent = &sent});
  }
  peer.link.send(1, {.to = 1, .key = {2, 0}, .bytes = other, .sent = &sent});
  Bytes stream;
  for (; sent < transfer.size() + other.size(); peer.link.flush()) append_sent(peer, stream);
  append_sent(peer, stream);
  // 17 blocks. The first one or two began while there was room.
  EXPECT_LE(ends_in(stream).size(), 8U);
  EXPECT_EQ(stream.size(), sent + ends_in(stream).size() * kDataHeaderBytes);
}

TEST(TurnsOfGroups, AMessageDoesNotWaitForData) {
  BareLink peer(2);
  const Bytes large(8 * kMaxDataBytes);
  const Bytes message(1000);
  Network::Word sent = 0;
  peer.link.send(1, {.to = 1, .key = {1, 0}, .bytes = large, .sent = &sent});
  peer.link.flush();  // until no socket has room
  ASSERT_LT(sent, large.size());
  peer.link.post(2, message);
  EXPECT_EQ(peer.take(0).size(), sizeof(std::uint64_t) + message.size() + kFrameOverheadBytes)
      << "no byte of data has been read";
}

}  // namespace
}  // namespace lockstep
