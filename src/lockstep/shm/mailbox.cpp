#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/shm/mailbox_internal.h"

namespace lockstep {
namespace {

std::string in_words(std::int64_t count, DType dtype, int tag) {
  return fmt::format("{} × {} with tag {}", count, to_string(dtype), tag);
}

// The value of `state` in the current use of the envelope.
std::uint64_t value_of(const Envelope& envelope, Envelope::State state) {
  return envelope.state.load(std::memory_order_relaxed) / 4 * 4 + state;
}

Envelope* find_free(Mailbox& box) {
  for (auto& envelope : box.envelopes) {
    if (envelope.state.load(std::memory_order_relaxed) % 4 == Envelope::empty) return &envelope;
  }
  return nullptr;
}

// The oldest envelope offered with this tag.
Envelope* find_envelope(Mailbox& box, int tag) {
  Envelope* found = nullptr;
  for (auto& envelope : box.envelopes) {
    const auto state = envelope.state.load(std::memory_order_acquire);
    if (state % 4 != Envelope::offered || envelope.tag != tag) continue;
    if (found == nullptr || envelope.number < found->number) found = &envelope;
  }
  return found;
}

// Throws if the message differs from the receive; the sender's recipe throws too.
void expect_match(const ShmMessage& mail, Envelope& envelope) {
  if (envelope.count == mail.message.count && envelope.dtype == mail.message.dtype) return;
  const auto sent = in_words(envelope.count, envelope.dtype, envelope.tag);
  envelope.refused = true;
  mail.raise(envelope.state, value_of(envelope, Envelope::taken));
  throw PeerError(mail.message.peer,
                  fmt::format("it sent {}, but this rank receives {} × {}", sent,
                              mail.message.count, to_string(mail.message.dtype)));
}

}  // namespace

Recipe send_recipe(ShmMessage& mail) {
  auto& box = mail.memory->mailbox(mail.memory->blocks().rank(), mail.message.peer);
  auto& offered = mail.state->offered;
  co_await mail.reaches(offered, mail.number);
  Envelope* free = find_free(box);
  while (free == nullptr) {
    co_await mail.reaches(mail.state->freed, mail.state->freed.load() + 1);
    free = find_free(box);
  }
  auto& envelope = *free;
  envelope.number = mail.number;
  envelope.count = mail.message.count;
  envelope.tag = mail.message.tag;
  envelope.dtype = mail.message.dtype;
  envelope.refused = false;
  envelope.location = mail.memory->locate(mail.outgoing);
  const bool in_envelope = mail.outgoing.size() <= kEnvelopeBytes;
  if (in_envelope && !mail.outgoing.empty()) {
    std::memcpy(envelope.bytes.data(), mail.outgoing.data(), mail.outgoing.size());
  }
  const auto claimed = value_of(envelope, Envelope::claimed);
  const auto through = value_of(envelope, Envelope::taken);
  envelope.state.store(value_of(envelope, Envelope::offered), std::memory_order_seq_cst);
  offered.store(mail.number + 1);
  mail.raise(box.offers, mail.number + 1);

  if (!in_envelope && envelope.location.allocation < 0) {
    co_await mail.reaches(envelope.state, claimed);
    for (std::size_t begin = 0; begin < mail.outgoing.size() && !envelope.refused;) {
      const auto written = box.written.load(std::memory_order_relaxed);
      if (written > 0) co_await mail.reaches(box.read, written - 1);  // two pieces in flight
      const auto bytes = std::min(kPieceBytes, mail.outgoing.size() - begin);
      std::memcpy(box.pieces[written % 2].data(), mail.outgoing.data() + begin, bytes);
      mail.raise(box.written, written + 1);
      begin += bytes;
    }
  }
  co_await mail.reaches(envelope.state, through);
  const bool refused = envelope.refused;
  envelope.state.store(through + 1, std::memory_order_release);  // empty again
  ++mail.state->freed;
  if (refused) {
    throw PeerError(
        mail.message.peer,
        fmt::format("the receiver expects a different message than {}",
                    in_words(mail.message.count, mail.message.dtype, mail.message.tag)));
  }
}

Recipe receive_recipe(ShmMessage& mail) {
  auto& box = mail.memory->mailbox(mail.message.peer, mail.memory->blocks().rank());
  const auto bytes = mail.incoming.size();
  auto& turns = *mail.turns;
  co_await mail.reaches(turns.matched, mail.number);
  Envelope* envelope = nullptr;
  const std::byte* lies_at = nullptr;
  while (true) {
    const auto offers = box.offers.load(std::memory_order_seq_cst);
    envelope = find_envelope(box, mail.message.tag);
    if (envelope == nullptr) {
      co_await mail.reaches(box.offers, offers + 1);
      continue;
    }
    expect_match(mail, *envelope);
    lies_at = bytes <= kEnvelopeBytes ? envelope->bytes.data()
                                      : mail.memory->resolve(mail.message.peer, envelope->location);
    const auto begun = mail.state->streams_begun;
    if (lies_at != nullptr || mail.state->streams_ended.load() == begun) break;
    co_await mail.reaches(mail.state->streams_ended, begun);
  }
  if (++turns.matched == turns.begun) mail.state->turns.erase(mail.message.tag);
  if (lies_at != nullptr) {
    if (bytes > 0) std::memcpy(mail.incoming.data(), lies_at, bytes);
  } else {
    ++mail.state->streams_begun;
    mail.raise(envelope->state, value_of(*envelope, Envelope::claimed));
    for (std::size_t begin = 0; begin < bytes;) {
      const auto read = box.read.load(std::memory_order_relaxed);
      co_await mail.reaches(box.written, read + 1);
      const auto length = std::min(kPieceBytes, bytes - begin);
      std::memcpy(mail.incoming.data() + begin, box.pieces[read % 2].data(), length);
      mail.raise(box.read, read + 1);
      begin += length;
    }
    mail.state->streams_ended.store(mail.state->streams_begun);
  }
  mail.raise(envelope->state, value_of(*envelope, Envelope::taken));
}

}  // namespace lockstep
