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

// The value of a letter's `state` in the same use of it.
std::uint64_t value_of(const Letter& letter, Letter::State state) {
  return letter.state.load(std::memory_order_relaxed) / 4 * 4 + state;
}

Letter* find_free(Mailbox& box) {
  for (auto& letter : box.letters) {
    if (letter.state.load(std::memory_order_relaxed) % 4 == Letter::empty) return &letter;
  }
  return nullptr;
}

// The oldest letter offered with this tag.
Letter* find_letter(Mailbox& box, int tag) {
  Letter* found = nullptr;
  for (auto& letter : box.letters) {
    const auto state = letter.state.load(std::memory_order_acquire);
    if (state % 4 != Letter::offered || letter.tag != tag) continue;
    if (found == nullptr || letter.number < found->number) found = &letter;
  }
  return found;
}

// Tells the sender too.
void expect_match(const ShmMessage& mail, Letter& letter) {
  if (letter.count == mail.message.count && letter.dtype == mail.message.dtype) return;
  const auto sent = in_words(letter.count, letter.dtype, letter.tag);
  letter.refused = true;
  mail.raise(letter.state, value_of(letter, Letter::taken));
  throw PeerError(mail.message.peer,
                  fmt::format("it sent {}, where this rank receives {} × {}", sent,
                              mail.message.count, to_string(mail.message.dtype)));
}

}  // namespace

Recipe send_recipe(ShmMessage& mail) {
  auto& box = mail.memory->mailbox(mail.memory->blocks().rank(), mail.message.peer);
  auto& offered = mail.state->offered;
  co_await mail.reaches(offered, mail.number);
  Letter* free = find_free(box);
  while (free == nullptr) {
    co_await mail.reaches(mail.state->freed, mail.state->freed.load() + 1);
    free = find_free(box);
  }
  auto& letter = *free;
  letter.number = mail.number;
  letter.count = mail.message.count;
  letter.tag = mail.message.tag;
  letter.dtype = mail.message.dtype;
  letter.refused = false;
  letter.location = mail.memory->locate(mail.outgoing);
  const bool in_letter = mail.outgoing.size() <= kLetterBytes;
  if (in_letter && !mail.outgoing.empty()) {
    std::memcpy(letter.bytes.data(), mail.outgoing.data(), mail.outgoing.size());
  }
  const auto claimed = value_of(letter, Letter::claimed);
  const auto through = value_of(letter, Letter::taken);
  letter.state.store(value_of(letter, Letter::offered), std::memory_order_seq_cst);
  offered.store(mail.number + 1);
  mail.raise(box.offers, mail.number + 1);

  if (!in_letter && letter.location.allocation < 0) {
    co_await mail.reaches(letter.state, claimed);
    for (std::size_t begin = 0; begin < mail.outgoing.size() && !letter.refused;) {
      const auto written = box.written.load(std::memory_order_relaxed);
      if (written > 0) co_await mail.reaches(box.read, written - 1);  // two pieces under way
      const auto bytes = std::min(kMailBytes, mail.outgoing.size() - begin);
      std::memcpy(box.pieces[written % 2].data(), mail.outgoing.data() + begin, bytes);
      mail.raise(box.written, written + 1);
      begin += bytes;
    }
  }
  co_await mail.reaches(letter.state, through);
  const bool refused = letter.refused;
  letter.state.store(through + 1, std::memory_order_release);  // empty again
  ++mail.state->freed;
  if (refused) {
    throw PeerError(mail.message.peer, fmt::format("the receiver expected something else than {}",
                                                   in_words(mail.message.count, mail.message.dtype,
                                                            mail.message.tag)));
  }
}

Recipe receive_recipe(ShmMessage& mail) {
  auto& box = mail.memory->mailbox(mail.message.peer, mail.memory->blocks().rank());
  const auto bytes = mail.incoming.size();
  auto& turns = *mail.turns;
  co_await mail.reaches(turns.matched, mail.number);
  Letter* letter = nullptr;
  const std::byte* lies_at = nullptr;
  while (true) {
    const auto offers = box.offers.load(std::memory_order_seq_cst);
    letter = find_letter(box, mail.message.tag);
    if (letter == nullptr) {
      co_await mail.reaches(box.offers, offers + 1);
      continue;
    }
    expect_match(mail, *letter);
    lies_at = bytes <= kLetterBytes ? letter->bytes.data()
                                    : mail.memory->resolve(mail.message.peer, letter->location);
    const auto begun = mail.state->streams_begun;
    if (lies_at != nullptr || mail.state->streams_ended.load() == begun) break;
    co_await mail.reaches(mail.state->streams_ended, begun);
  }
  if (++turns.matched == turns.begun) mail.state->turns.erase(mail.message.tag);
  if (lies_at != nullptr) {
    if (bytes > 0) std::memcpy(mail.incoming.data(), lies_at, bytes);
  } else {
    ++mail.state->streams_begun;
    mail.raise(letter->state, value_of(*letter, Letter::claimed));
    for (std::size_t begin = 0; begin < bytes;) {
      const auto read = box.read.load(std::memory_order_relaxed);
      co_await mail.reaches(box.written, read + 1);
      const auto length = std::min(kMailBytes, bytes - begin);
      std::memcpy(mail.incoming.data() + begin, box.pieces[read % 2].data(), length);
      mail.raise(box.read, read + 1);
      begin += length;
    }
    mail.state->streams_ended.store(mail.state->streams_begun);
  }
  mail.raise(letter->state, value_of(*letter, Letter::taken));
}

}  // namespace lockstep
