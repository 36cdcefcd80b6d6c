// The bytes of the connections between two processes, below the messages of the groups.
// docs/wire_format.md describes them. Pure functions; the bytes are not trusted.
//
// Two processes have one connection for messages, encrypted and authenticated as frames
// (net/seal.h), and one or more for data, the stripes, with checksums or, by option, encrypted too.
// All begin with a handshake that proves the job's secret (net/handshake.h) and a hello.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/fabric/network.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/rendezvous/network_settings.h"
#include "lockstep/rendezvous/process_identity.h"

namespace lockstep {

enum class ConnectionKind : std::uint8_t { messages = 1, data = 2 };

/// The first frame of a connection, in each direction for messages, from the client for data.
struct Hello {
  ConnectionKind kind = ConnectionKind::messages;
  int rank = 0;           // global rank of the sender
  bool encrypts = false;  // the sender's data; equal in both processes
  int stripe = 0;         // of data
  int num_stripes = 1;    // that the client opens

  friend bool operator==(const Hello&, const Hello&) = default;
};
[[nodiscard]] std::vector<std::byte> encode(const Hello& hello);
[[nodiscard]] std::optional<Hello> try_decode_hello(std::span<const std::byte> bytes);

/// Messages of the link itself; the end of all others is at least 1.
constexpr std::uint64_t kLinkEnd = 0;
enum class LinkNote : std::uint8_t {
  ping = 1,  // to be answered by a pong, on the same connection
  pong = 2,
  farewell = 3,  // the process ends in order
  refusal = 4,   // the process closes the connection, for the reason that follows as text
};

/// The header of up to kMaxDataBytes of one transfer; the bytes follow it.
struct DataHeader {
  std::uint64_t end = 0;  // of the receiver
  TransferKey key = {};
  std::uint64_t offset = 0;  // in the transfer
  std::uint32_t length = 0;
  std::array<std::uint32_t, 3> checksums = {};  // crc32c_of_thirds; 0 if the bytes are encrypted

  friend bool operator==(const DataHeader&, const DataHeader&) = default;
};
constexpr std::size_t kDataHeaderBytes = 48;
constexpr std::size_t kMaxDataBytes = 1U << 20;
using DataHeaderBytes = std::array<std::byte, kDataHeaderBytes>;
[[nodiscard]] DataHeaderBytes encode(const DataHeader& header) noexcept;
/// nullopt if the header was changed on the way, or is longer than allowed.
[[nodiscard]] std::optional<DataHeader> try_decode_header(
    std::span<const std::byte, kDataHeaderBytes> bytes) noexcept;

/// What a rank publishes when a group is created.
struct RankAddress {
  std::vector<Endpoint> endpoints;  // of its listeners, one per interface; messages use the first
  std::string token;                // of the listeners: part of the handshake
  std::uint64_t end = 0;            // of the group
  ProcessIdentity process = {};

  friend bool operator==(const RankAddress&, const RankAddress&) = default;
};
/// "10.0.0.2:40001,10.1.0.2:40001 0f3a… 7 4711 123456".
[[nodiscard]] std::string to_string(const RankAddress& address);
/// Throws UsageError for any other text.
[[nodiscard]] RankAddress parse_rank_address(const std::string& text);

}  // namespace lockstep
