// One message between two ranks through their message queue, and the recipes of its two sides.
//
// The sender offers an envelope that describes the message. The data of a small message is in the
// envelope; data in registered memory is read in place. The receiver copies the data and marks the
// envelope as taken. Other data passes through the message queue in pieces, once the receiver has
// claimed the message; a receiver claims one message at a time.
//
// Messages are offered in the order of sending, each in any free envelope, so that messages of one
// tag arrive in order. When all kEnvelopes wait for a receive of their tags, later messages wait
// too.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/shm/group_memory_internal.h"

namespace lockstep {

// The state of a rank's messages with one peer.
struct MessageState {
  std::uint64_t sent = 0;
  std::atomic<std::uint64_t> offered = 0;  // of the messages sent
  std::atomic<std::uint64_t> freed = 0;    // envelopes freed after use
  // Receives of one tag match envelopes in the order of their start.
  struct Turns {
    std::uint64_t begun = 0;
    std::atomic<std::uint64_t> matched = 0;
  };
  // By tag, for tags with unmatched receives. Each receive shares ownership: a thread may sleep on
  // `matched` while another thread matches the last receive and erases the entry here.
  std::map<int, std::shared_ptr<Turns>> turns = {};
  std::uint64_t streams_begun = 0;  // messages received in pieces, one at a time
  std::atomic<std::uint64_t> streams_ended = 0;
};

class ShmMessage final : public MessageOperation {
 public:
  std::span<const std::byte> outgoing = {};
  std::span<std::byte> incoming = {};
  std::uint64_t number = 0;  // of the messages sent to this peer, or of the receives of this tag
  GroupMemory* memory = nullptr;
  MessageState* state = nullptr;
  std::shared_ptr<MessageState::Turns> turns = {};  // of a receive

  [[nodiscard]] Awaited reaches(const std::atomic<std::uint64_t>& word,
                                std::uint64_t target) const {
    return {.counters = &memory->blocks().counters(),
            .word = &word,
            .target = target,
            .peer = message.peer};
  }
  void raise(std::atomic<std::uint64_t>& word, std::uint64_t value) const noexcept {
    word.store(value, std::memory_order_seq_cst);
    memory->blocks().ring();
  }
};

/// The recipes throw PeerError if sender and receiver disagree on dtype or count.
[[nodiscard]] Recipe send_recipe(ShmMessage& operation);
[[nodiscard]] Recipe receive_recipe(ShmMessage& operation);

}  // namespace lockstep
