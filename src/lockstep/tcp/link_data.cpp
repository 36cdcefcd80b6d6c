// The data of a link: frames of transfers, with checksums or encrypted.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "lockstep/base/crc32c.h"
#include "lockstep/tcp/link_internal.h"
#include "lockstep/tcp/loss_internal.h"

namespace lockstep {
namespace {

// Per call: both directions of a busy connection get their turns.
constexpr std::size_t kTurnBytes = 1U << 20;
// With several stripes, a short transfer is divided among them, and of a long one the faster stripe
// takes more frames.
constexpr std::size_t kLeastStripedBytes = 64U << 10;
constexpr std::size_t kMostStripedBytes = 256U << 10;

bool overlap(const DataHeader& a, const DataHeader& b) {
  return a.end == b.end && a.key == b.key && a.offset < b.offset + b.length &&
         b.offset < a.offset + a.length;
}

// Whether `next` begins where `last` ends: then one frame can have bytes of both.
bool continues(const Link::Outgoing& last, const Link::Outgoing& next) {
  return last.to == next.to && last.key == next.key && last.sent == next.sent &&
         last.offset + last.bytes.size() == next.offset &&
         last.bytes.data() + last.bytes.size() == next.bytes.data();
}

// Whether the bytes of a frame belong to the transfer, and none of them has arrived before.
bool is_new(const LinkHandler::Destination& destination, const DataHeader& header) {
  const auto size = destination.bytes.size();
  if (header.length == 0 || header.offset > size || header.length > size - header.offset ||
      header.offset < destination.received->load(std::memory_order_relaxed)) {
    return false;
  }
  const auto next = destination.ahead.upper_bound(header.offset);
  if (next != destination.ahead.end() && next->first < header.offset + header.length) return false;
  return next == destination.ahead.begin() || std::prev(next)->second <= header.offset;
}

}  // namespace

void Link::send(std::uint64_t own, const Outgoing& outgoing) {
  if (is_lost_) return;
  const bool others_wait = !queues_.empty();
  auto& queue = queues_[own];
  if (!queue.empty() && continues(queue.back(), outgoing)) {
    auto& last = queue.back().bytes;
    last = {last.data(), last.size() + outgoing.bytes.size()};
  } else {
    queue.push_back(outgoing);
  }
  // One frame needs no threads; nor do stripes without room.
  if (outgoing.bytes.size() <= kLeastStripedBytes) return flush_in_turn();
  if (!others_wait || !has_threads()) flush_data();
}

void Link::forget(std::uint64_t own, std::optional<std::uint64_t> number) {
  const auto found = queues_.find(own);
  if (found != queues_.end()) {
    if (number) {
      std::erase_if(found->second,
                    [&](const Outgoing& each) { return each.key.number == *number; });
    }
    if (!number || found->second.empty()) queues_.erase(found);
  }
  for (const auto& stripe : stripes_) {
    if (!stripe || !stripe->frame) continue;
    auto& frame = *stripe->frame;
    if (frame.own != own || (number && frame.number != *number)) continue;
    frame.word = nullptr;
    if (encrypts()) continue;  // the bytes are a copy, and the peer counts every frame
    if (frame.sent == 0) {
      stripe->frame.reset();
    } else if (frame.copy.empty()) {
      // The rest of a frame must follow its beginning; its memory is no longer ours.
      frame.copy.assign(frame.bytes.begin(), frame.bytes.end());
      frame.bytes = frame.copy;
    }
  }
}

std::array<std::uint32_t, 3> Link::checksums_of(std::span<const std::byte> bytes) const {
  const bool checks = protection_ == DataProtection::checksums;
  return checks ? crc32c_of_thirds(bytes) : std::array<std::uint32_t, 3>{};
}

// Header and bytes are pieces of their own: the receiver must trust the header before it knows
// where the bytes belong.
void Link::seal(Stripe& stripe, const DataHeader& header) {
  auto& frame = *stripe.frame;
  const auto plain = encode(header);
  if (!encrypts()) {
    std::copy(plain.begin(), plain.end(), frame.header.begin());
    return;
  }
  auto& sealer = stripe.connection->sealer;
  sealer.seal_piece(plain, frame.header);
  if (frame.bytes.empty()) return;  // a ping or pong
  stripe.sealed.resize(frame.bytes.size() + kPieceTagBytes);
  sealer.seal_piece(frame.bytes, stripe.sealed);
  frame.bytes = stripe.sealed;
}

// A note, or else a part of the next group in turn.
bool Link::next_frame(Stripe& stripe) {
  if (!stripe.notes.empty()) {
    stripe.frame.emplace();
    seal(stripe, {.end = kLinkEnd, .key = {0, static_cast<std::uint32_t>(stripe.notes.front())}});
    stripe.notes.pop_front();
    return true;
  }
  auto shared = lock_shared();
  if (queues_.empty()) return false;
  auto turn = queues_.upper_bound(last_served_);
  if (turn == queues_.end()) turn = queues_.begin();
  last_served_ = turn->first;
  auto& outgoing = turn->second.front();
  const auto limit = stripes_.size() == 1 ? kMaxDataBytes
                                          : std::clamp(outgoing.bytes.size() / stripes_.size(),
                                                       kLeastStripedBytes, kMostStripedBytes);
  const auto bytes = outgoing.bytes.first(std::min(outgoing.bytes.size(), limit));
  auto& frame = stripe.frame.emplace();
  frame.own = turn->first;
  frame.number = outgoing.key.number;
  frame.bytes = bytes;
  frame.length = bytes.size();
  frame.word = outgoing.sent;
  DataHeader header{.end = outgoing.to,
                    .key = outgoing.key,
                    .offset = outgoing.offset,
                    .length = static_cast<std::uint32_t>(bytes.size())};
  outgoing.offset += bytes.size();
  outgoing.bytes = outgoing.bytes.subspan(bytes.size());
  if (outgoing.bytes.empty()) turn->second.pop_front();
  if (turn->second.empty()) queues_.erase(turn);
  if (shared) shared.unlock();
  header.checksums = checksums_of(bytes);
  seal(stripe, header);
  return true;
}

std::size_t Link::send_some(Stripe& stripe) {
  if (stripe.pulse.has_ended || stripe.failure) return 0;
  if (!stripe.frame && !next_frame(stripe)) return 0;
  auto& frame = *stripe.frame;
  const auto header =
      std::span(frame.header).first(header_size()).subspan(std::min(frame.sent, header_size()));
  const auto bytes =
      frame.bytes.subspan(frame.sent > header_size() ? frame.sent - header_size() : 0);
  std::array<iovec, 2> parts{iovec{header.data(), header.size()},
                             iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const auto count =
      ::sendmsg(stripe.connection->socket.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count < 0) {
    if (!is_temporary(errno) && errno != EPIPE && errno != ECONNRESET) {
      fail(stripe, error_in_words(errno, stripe.pulse.acknowledges));
    }
    return 0;
  }
  const auto sent = static_cast<std::size_t>(count);
  moved_ += sent;
  frame.sent += sent;
  if (frame.sent == header_size() + frame.bytes.size()) {
    if (frame.word != nullptr) frame.word->fetch_add(frame.length);
    stripe.frame.reset();
  }
  return sent;
}

void Link::flush_data() {
  if (!has_threads()) return flush_in_turn();
  for (const auto& stripe : stripes_) {
    if (stripe && has_output(stripe->channel)) stripe->is_ready = true;
  }
  flush_at_once();
}

bool Link::has_threads() const {
  return stripes_.size() > 1 && threads_ != nullptr && !threads_->is_empty();
}

void Link::put_off(int channel) {
  if (descriptor(channel) < 0) return;
  auto& stripe = *stripes_[static_cast<std::size_t>(channel - 1)];
  stripe.is_ready = true;
  stripe.has_input = true;
}

// Each stripe that is ready takes a turn. Nothing but these turns runs meanwhile: the caller has
// the lock of the network.
void Link::flush_at_once() {
  std::vector<Stripe*> turns;
  for (const auto& stripe : stripes_) {
    const bool is_ready = stripe && std::exchange(stripe->is_ready, false);
    if (is_ready && !is_lost_ && !stripe->pulse.has_ended) turns.push_back(stripe.get());
  }
  if (turns.empty()) return;
  is_forked_ = true;
  threads_->run(turns.size(), [&](std::size_t index) { run_turn(*turns[index]); });
  is_forked_ = false;
  for (auto* const stripe : turns) settle(*stripe);
}

// In any thread. Receives only what the caller has waited for: a caller that sends would otherwise
// read what another one sleeps for.
void Link::run_turn(Stripe& stripe) {
  try {
    if (std::exchange(stripe.has_input, false)) (void)receive_data(stripe);
    for (std::size_t sent = 0; sent < kTurnBytes;) {
      const auto more = send_some(stripe);
      if (more == 0) break;
      sent += more;
    }
  } catch (const std::exception& error) {
    fail(stripe, error.what());
  }
}

// Stripes take turns, one frame each, until none has room or nothing is left.
void Link::flush_in_turn() {
  std::size_t moved = 0;
  std::size_t idle = 0;  // stripes in a row that sent nothing
  while (!is_lost_ && moved < kTurnBytes && idle < stripes_.size()) {
    last_stripe_ = (last_stripe_ + 1) % stripes_.size();
    const auto& stripe = stripes_[last_stripe_];
    const auto sent = stripe ? send_some(*stripe) : 0;
    if (stripe) settle(*stripe);
    moved += sent;
    idle = sent > 0 ? 0 : idle + 1;
  }
}

// Reads the bytes of a frame and the header of the next one with one call.
bool Link::receive_data(Stripe& stripe) {
  std::size_t moved = 0;
  while (moved < kTurnBytes && !is_lost_ && !stripe.failure) {
    std::span<std::byte> bytes;
    std::span<std::byte> tag;
    LinkHandler::Destination* destination = nullptr;  // stays: no turn forgets it
    if (stripe.incoming) {
      const auto& incoming = *stripe.incoming;
      if (encrypts()) tag = std::span(stripe.tag).subspan(stripe.tag_received);
      destination = destination_of(stripe);
      if (destination != nullptr) {
        bytes = stripe.transfer.subspan(incoming.offset, incoming.length);
      } else {
        stripe.dropped.resize(incoming.length);
        bytes = stripe.dropped;
      }
      bytes = bytes.subspan(stripe.incoming_received);
    }
    const auto header =
        std::span(stripe.header_bytes).first(header_size()).subspan(stripe.header_received);
    std::array<iovec, 3> parts{iovec{bytes.data(), bytes.size()}, iovec{tag.data(), tag.size()},
                               iovec{header.data(), header.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const auto count = ::recvmsg(stripe.connection->socket.number(), &message, MSG_DONTWAIT);
    if (count < 0 && is_temporary(errno)) break;
    if (count <= 0) {
      stripe.failure = {.error_number = count < 0 ? errno : ECONNRESET};
      break;
    }
    moved += static_cast<std::size_t>(count);
    moved_ += static_cast<std::size_t>(count);
    stripe.pulse.last_heard = Clock::now();
    const auto of_bytes = std::min(static_cast<std::size_t>(count), bytes.size());
    const auto of_tag = std::min(static_cast<std::size_t>(count) - of_bytes, tag.size());
    stripe.incoming_received += of_bytes;
    stripe.tag_received += of_tag;
    stripe.header_received += static_cast<std::size_t>(count) - of_bytes - of_tag;
    if (stripe.incoming && of_bytes == bytes.size() && of_tag == tag.size()) {
      end_frame(stripe, destination);
    }
    if (stripe.failure) break;
    if (!stripe.incoming && stripe.header_received == header_size()) begin_frame(stripe);
  }
  return moved > 0;
}

void Link::begin_frame(Stripe& stripe) {
  const auto shared = lock_shared();
  const auto bytes = std::span(stripe.header_bytes);
  if (encrypts() && !stripe.connection->opener.try_open_piece(bytes.first<kDataHeaderBytes>(),
                                                              bytes.last<kPieceTagBytes>())) {
    return fail(stripe,
                "bytes of its connection were changed on the way: a header of data is not its own");
  }
  stripe.incoming = try_decode_header(bytes.first<kDataHeaderBytes>());
  stripe.header_received = 0;
  stripe.incoming_received = 0;
  stripe.tag_received = 0;
  if (!stripe.incoming) {
    return fail(stripe,
                "bytes of its connection were changed on the way: a header of data is invalid");
  }
  if (stripe.incoming->end == kLinkEnd) {
    const auto header = *std::exchange(stripe.incoming, std::nullopt);
    if (header.length > 0) return fail(stripe, "it sent data that this rank does not expect");
    if (header.key.part == static_cast<std::uint32_t>(LinkNote::pong)) has_answered_ = true;
    if (header.key.part == static_cast<std::uint32_t>(LinkNote::ping)) {
      stripe.notes.push_back(LinkNote::pong);
    }
    return;
  }
  const auto& incoming = *stripe.incoming;
  const auto* const destination = handler_.find_destination(peer_, incoming.end, incoming.key);
  if (!is_expected(stripe, destination)) {
    return fail(stripe, "it sent data that this rank does not expect");
  }
  stripe.transfer = destination == nullptr ? std::span<std::byte>() : destination->bytes;
}

// A peer is authenticated, but may be faulty. Nothing that it states of a frame is used before it
// has been compared with what this rank expects.
bool Link::is_expected(const Stripe& stripe, const LinkHandler::Destination* destination) {
  const auto& incoming = *stripe.incoming;
  if (destination == nullptr) return handler_.may_arrive_late(incoming.end, incoming.key);
  return is_new(*destination, incoming) &&
         std::none_of(stripes_.begin(), stripes_.end(), [&](const auto& other) {
           return other && other.get() != &stripe && other->incoming && !other->transfer.empty() &&
                  overlap(*other->incoming, incoming);
         });
}

// Where the frame belongs that arrives; nullptr if it is dropped. Its place was compared with the
// transfer that was expected when it began: if that was forgotten since, a later one of the same
// key is another one.
LinkHandler::Destination* Link::destination_of(const Stripe& stripe) {
  if (stripe.transfer.empty()) return nullptr;
  const auto shared = lock_shared();
  const auto& incoming = *stripe.incoming;
  auto* const destination = handler_.find_destination(peer_, incoming.end, incoming.key);
  const bool is_same = destination != nullptr &&
                       destination->bytes.data() == stripe.transfer.data() &&
                       destination->bytes.size() == stripe.transfer.size();
  return is_same ? destination : nullptr;
}

// The bytes are checked while other stripes move theirs.
void Link::end_frame(Stripe& stripe, LinkHandler::Destination* destination) {
  const auto header = *stripe.incoming;
  stripe.incoming_received = 0;
  if (destination == nullptr) {
    if (encrypts()) stripe.connection->opener.skip_piece();
  } else {
    const auto bytes = destination->bytes.subspan(header.offset, header.length);
    if (encrypts() && !stripe.connection->opener.try_open_piece(bytes, stripe.tag)) {
      return fail(stripe,
                  "bytes of its connection were changed on the way: the tag of data differs");
    }
    if (checksums_of(bytes) != header.checksums) {
      return fail(stripe,
                  "bytes of its connection were changed on the way: the checksum of data differs");
    }
  }
  const auto shared = lock_shared();
  stripe.incoming.reset();
  if (destination == nullptr) return;
  auto& received = *destination->received;
  auto& ahead = destination->ahead;
  const auto before = received.load(std::memory_order_relaxed);
  ahead[header.offset] = header.offset + header.length;
  auto done = before;
  while (!ahead.empty() && ahead.begin()->first == done) {
    done = ahead.begin()->second;
    ahead.erase(ahead.begin());
  }
  if (done == before) return;
  // Once all have arrived, the operation may end and take its memory with it.
  if (done == destination->bytes.size()) handler_.drop_destination(peer_, header.end, header.key);
  received.store(done, std::memory_order_seq_cst);
}

}  // namespace lockstep
