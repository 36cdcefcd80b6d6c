// Fuzz target: arbitrary bytes as the other side's half of a handshake, for both roles. They are
// refused with a UsageError, are incomplete, or are the bytes that an honest other side would have
// sent; everything else is a crash.
//
// Input: one byte of options (bit 0: role; bit 1: mode; other bits: chunk size). Then, in mode 0,
// the bytes themselves; in mode 1, pairs (position, mask) that change the bytes of an honest side.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/net/handshake.h"

namespace {

using lockstep::Handshake;
using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

const lockstep::HandshakeContext kContext{"job", 1};
constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kMagicBytes = 4;

const lockstep::Secret& secret() {
  static const auto fixed =
      lockstep::Secret::from_bytes(std::array<std::byte, lockstep::Secret::kBytes>{});
  return fixed;
}

lockstep::HandshakeNonce nonce_of(View bytes) {
  lockstep::HandshakeNonce nonce{};
  std::copy_n(bytes.begin(), kNonceBytes, nonce.begin());
  return nonce;
}

Handshake make_client(const lockstep::HandshakeNonce& nonce) {
  return Handshake::client(secret(), kContext, nonce);
}

Handshake make_server(const lockstep::HandshakeNonce& nonce) {
  return Handshake::server(secret(), kContext, nonce);
}

// The bytes that an honest client with this nonce sends to the server of this fuzzer.
Bytes honest_client(const lockstep::HandshakeNonce& nonce) {
  auto client = make_client(nonce);
  auto server = make_server({});
  auto said = client.release_output();
  (void)server.feed(said);
  (void)client.feed(server.release_output());
  const auto proof = client.release_output();
  said.insert(said.end(), proof.begin(), proof.end());
  return said;
}

// The bytes that an honest server with this nonce sends to the client of this fuzzer.
Bytes honest_server(const lockstep::HandshakeNonce& nonce) {
  auto server = make_server(nonce);
  (void)server.feed(make_client({}).release_output());
  return server.release_output();
}

// Feeds `bytes` in chunks. Returns how many were consumed.
std::size_t feed(Handshake& handshake, View bytes, std::size_t cut) {
  std::size_t taken = 0;
  while (taken < bytes.size()) {
    const auto part = bytes.subspan(taken, std::min(cut, bytes.size() - taken));
    const auto count = handshake.feed(part);
    taken += count;
    if (count == part.size()) continue;
    LOCKSTEP_ASSERT(handshake.done(), "only the end of the handshake leaves bytes");
    return taken;
  }
  return taken;
}

void check(bool as_server, View bytes, std::size_t cut) {
  auto handshake = as_server ? make_server({}) : make_client({});
  try {
    const auto taken = feed(handshake, bytes, cut);
    LOCKSTEP_ASSERT(handshake.done() == (handshake.wanted() == 0), "it wants bytes until the end");
    if (!handshake.done()) return;
    const auto honest = as_server ? honest_client(nonce_of(bytes.subspan(kMagicBytes)))
                                  : honest_server(nonce_of(bytes));
    LOCKSTEP_ASSERT(std::ranges::equal(honest, bytes.first(taken)), "a forged proof was accepted");
    (void)handshake.keys();
  } catch (const lockstep::UsageError& error) {
    for (const char c : std::string_view(error.what())) {
      LOCKSTEP_ASSERT(c >= 0x20 && c < 0x7f, "a message contains no control characters");
    }
    LOCKSTEP_ASSERT(!handshake.done(), "a refused peer is not authenticated");
    LOCKSTEP_ASSERT(handshake.release_output().empty(), "a refused peer receives no output");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool as_server = (data[0] & 1u) != 0;
  const std::size_t cut = (data[0] >> 2u) + 1u;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  if ((data[0] & 2u) == 0) {
    check(as_server, rest, cut);
    return 0;
  }
  auto changed = as_server ? honest_client({}) : honest_server({});
  for (std::size_t i = 0; i + 1 < rest.size(); i += 2) {
    changed[std::to_integer<std::size_t>(rest[i]) % changed.size()] ^= rest[i + 1];
  }
  check(as_server, changed, cut);
  return 0;
}
