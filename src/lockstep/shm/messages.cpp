#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/shm/messages_internal.h"

namespace lockstep {
namespace {

std::string in_words(std::int64_t count, DType dtype, int tag) {
  return fmt::format("{} × {} with tag {}", count, to_string(dtype), tag);
}

// The value of `state` in the current use of the envelope.
std::uint64_t value_of(const Envelope& envelope, Envelope::State state) {
  return envelope.state.load(std::memory_order_relaxed) / 4 * 4 + state;
}

Envelope* find_free(MessageQueue& queue) {
  for (auto& envelope : queue.envelopes) {
    if (envelope.state.load(std::memory_order_relaxed) % 4 == Envelope::empty) return &envelope;
  }
  return nullptr;
}

// The oldest envelope offered with this tag.
Envelope* find_envelope(MessageQueue& queue, int tag) {
  Envelope* found = nullptr;
  for (auto& envelope : queue.envelopes) {
    const auto state = envelope.state.load(std::memory_order_acquire);
    if (state % 4 != Envelope::offered || envelope.tag != tag) continue;
    if (found == nullptr || envelope.number < found->number) found = &envelope;
  }
  return found;
}

// Throws if the message differs from the receive; the sender's recipe throws too.
void expect_match(const ShmMessage& operation, Envelope& envelope) {
  if (envelope.count == operation.message.count && envelope.dtype == operation.message.dtype)
    return;
  const auto sent = in_words(envelope.count, envelope.dtype, envelope.tag);
  envelope.refused = true;
  operation.raise(envelope.state, value_of(envelope, Envelope::taken));
  throw PeerError(operation.message.peer,
                  fmt::format("it sent {}, but this rank receives {} × {}", sent,
                              operation.message.count, to_string(operation.message.dtype)));
}

}  // namespace

Recipe send_recipe(ShmMessage& operation) {
  auto& queue =
      operation.memory->message_queue(operation.memory->blocks().rank(), operation.message.peer);
  auto& offered = operation.state->offered;
  co_await operation.reaches(offered, operation.number);
  Envelope* free = find_free(queue);
  while (free == nullptr) {
    co_await operation.reaches(operation.state->freed, operation.state->freed.load() + 1);
    free = find_free(queue);
  }
  auto& envelope = *free;
  envelope.number = operation.number;
  envelope.count = operation.message.count;
  envelope.tag = operation.message.tag;
  envelope.dtype = operation.message.dtype;
  envelope.refused = false;
  envelope.location = operation.memory->locate(operation.outgoing);
  const bool in_envelope = operation.outgoing.size() <= kEnvelopeBytes;
  if (in_envelope && !operation.outgoing.empty()) {
    std::memcpy(envelope.bytes.data(), operation.outgoing.data(), operation.outgoing.size());
  }
  const auto claimed = value_of(envelope, Envelope::claimed);
  const auto through = value_of(envelope, Envelope::taken);
  envelope.state.store(value_of(envelope, Envelope::offered), std::memory_order_seq_cst);
  offered.store(operation.number + 1);
  operation.raise(queue.offers, operation.number + 1);

  if (!in_envelope && envelope.location.allocation < 0) {
    co_await operation.reaches(envelope.state, claimed);
    for (std::size_t begin = 0; begin < operation.outgoing.size() && !envelope.refused;) {
      const auto written = queue.written.load(std::memory_order_relaxed);
      if (written > 0) co_await operation.reaches(queue.read, written - 1);  // two pieces in flight
      const auto bytes = std::min(kPieceBytes, operation.outgoing.size() - begin);
      std::memcpy(queue.pieces[written % 2].data(), operation.outgoing.data() + begin, bytes);
      operation.raise(queue.written, written + 1);
      begin += bytes;
    }
  }
  co_await operation.reaches(envelope.state, through);
  const bool refused = envelope.refused;
  envelope.state.store(through + 1, std::memory_order_release);  // empty again
  ++operation.state->freed;
  if (refused) {
    throw PeerError(operation.message.peer,
                    fmt::format("the receiver expects a different message than {}",
                                in_words(operation.message.count, operation.message.dtype,
                                         operation.message.tag)));
  }
}

Recipe receive_recipe(ShmMessage& operation) {
  auto& queue =
      operation.memory->message_queue(operation.message.peer, operation.memory->blocks().rank());
  const auto bytes = operation.incoming.size();
  auto& turns = *operation.turns;
  co_await operation.reaches(turns.matched, operation.number);
  Envelope* envelope = nullptr;
  const std::byte* lies_at = nullptr;
  while (true) {
    const auto offers = queue.offers.load(std::memory_order_seq_cst);
    envelope = find_envelope(queue, operation.message.tag);
    if (envelope == nullptr) {
      co_await operation.reaches(queue.offers, offers + 1);
      continue;
    }
    expect_match(operation, *envelope);
    lies_at = bytes <= kEnvelopeBytes
                  ? envelope->bytes.data()
                  : operation.memory->resolve(operation.message.peer, envelope->location);
    const auto begun = operation.state->streams_begun;
    if (lies_at != nullptr || operation.state->streams_ended.load() == begun) break;
    co_await operation.reaches(operation.state->streams_ended, begun);
  }
  if (++turns.matched == turns.begun) operation.state->turns.erase(operation.message.tag);
  if (lies_at != nullptr) {
    if (bytes > 0) std::memcpy(operation.incoming.data(), lies_at, bytes);
  } else {
    ++operation.state->streams_begun;
    operation.raise(envelope->state, value_of(*envelope, Envelope::claimed));
    for (std::size_t begin = 0; begin < bytes;) {
      const auto read = queue.read.load(std::memory_order_relaxed);
      co_await operation.reaches(queue.written, read + 1);
      const auto length = std::min(kPieceBytes, bytes - begin);
      std::memcpy(operation.incoming.data() + begin, queue.pieces[read % 2].data(), length);
      operation.raise(queue.read, read + 1);
      begin += length;
    }
    operation.state->streams_ended.store(operation.state->streams_begun);
  }
  operation.raise(envelope->state, value_of(*envelope, Envelope::taken));
}

}  // namespace lockstep
