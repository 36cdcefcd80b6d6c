// The messages of a group between hosts: what a control plane publishes, and the notes by which two
// ranks agree on a message between them. docs/wire_format.md describes their bytes. Pure functions;
// the bytes are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"

namespace lockstep {

struct NetworkMessage {
  enum class Kind : std::uint8_t {
    entered = 1,   // the sender has entered call `number`: signature, completed, record, bytes
    completed,     // it has completed all calls up to `number`
    standing,      // standing, completed
    failed,        // it has given up the group: cause, completed
    waits,         // it sleeps in call `number`
    offer,         // of a message: number, message, bytes if they are few
    claim,         // of message `number`: the sender may send its bytes
    answer,        // to message `number`: accepted
    phases,        // it has ended `number` phases, counted over all calls
    relayed,       // about rank `origin`: `bytes` are another message, which it has sent to all
    lost,          // the connection to the origin has ended: cause.text states why. Only relayed
    host_entered,  // `headers`: messages of kind `entered` of ranks of the sender's host
  };
  Kind kind = Kind::entered;
  std::uint64_t number = 0;
  std::uint64_t signature = 0;
  std::uint64_t completed = 0;  // all calls up to this number are completed
  CallRecord record = {};
  Standing standing = Standing::joining;
  Cause cause = {};
  Message message = {};  // tag, dtype and count
  bool accepted = false;
  bool is_inline = false;  // of an offer: the bytes are in it
  int origin = 0;
  std::span<const std::byte> bytes = {};
  std::vector<NetworkMessage> headers = {};  // each with its origin
};

/// A longer cause is cut.
constexpr std::size_t kMaxCauseBytes = 1024;
constexpr std::size_t kMaxInlineMessageBytes = 16U << 10;
/// At least the bytes of a header without its input; with its origin and length in `headers`.
constexpr std::size_t kMaxEnteredBytes = 256;

[[nodiscard]] std::vector<std::byte> encode(const NetworkMessage& message);
/// nullopt for bytes that encode() does not produce. `bytes` of the result refers to the argument.
[[nodiscard]] std::optional<NetworkMessage> try_decode(std::span<const std::byte> bytes);

}  // namespace lockstep
