// One message between two ranks through their mailbox, and the recipes of its two sides.
//
// The sender offers a letter that says what it sends. A small message lies in the letter, one in
// registered memory is read where it is: the receiver takes it and says so. A larger one goes
// through the mailbox in pieces, once the receiver has claimed it; it claims one at a time.
//
// Letters are offered in the order of sending, whichever of them is free, so that messages of one
// tag arrive in order. When all kLetters wait for a receiver of their tags, later ones wait too.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/shm/group_memory_internal.h"

namespace lockstep {

// What a rank remembers of its messages with one peer.
struct MailState {
  std::uint64_t sent = 0;
  std::atomic<std::uint64_t> offered = 0;  // of those sent
  std::atomic<std::uint64_t> freed = 0;    // letters, after use
  // Receives of one tag match letters in the order they were begun.
  struct Turns {
    std::uint64_t begun = 0;
    std::atomic<std::uint64_t> matched = 0;
  };
  // By tag, where not all are matched. Each receive holds its own: a thread may sleep on `matched`
  // while another matches the last and drops it here.
  std::map<int, std::shared_ptr<Turns>> turns = {};
  std::uint64_t streams_begun = 0;  // messages received piece by piece, one at a time
  std::atomic<std::uint64_t> streams_ended = 0;
};

class ShmMessage final : public MessageOperation {
 public:
  std::span<const std::byte> outgoing = {};
  std::span<std::byte> incoming = {};
  std::uint64_t number = 0;  // of the messages sent to this peer, or its turn among the receives
  GroupMemory* memory = nullptr;
  MailState* state = nullptr;
  std::shared_ptr<MailState::Turns> turns = {};  // of a receive

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

/// They throw PeerError when what is sent is not what is received.
[[nodiscard]] Recipe send_recipe(ShmMessage& mail);
[[nodiscard]] Recipe receive_recipe(ShmMessage& mail);

}  // namespace lockstep
