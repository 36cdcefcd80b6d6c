// The data of a link: frames of transfers, with checksums or encrypted.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/crc32c.h"
#include "lockstep/tcp/link_internal.h"

namespace lockstep {
namespace {

// Per call: both directions of a busy connection get their turns.
constexpr std::size_t kTurnBytes = 1U << 20;

}  // namespace

void Link::send(std::uint64_t own, const Outgoing& outgoing) {
  if (is_lost_) return;
  queues_[own].push_back(outgoing);
  flush_data();
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
  if (!frame_ || frame_->own != own || (number && frame_->number != *number)) return;
  frame_->word = nullptr;
  if (encrypts()) return;  // the bytes are a copy, and the peer counts every frame
  if (frame_->sent == 0) {
    frame_.reset();
  } else if (frame_->copy.empty()) {
    // The rest of a frame must follow its beginning; its memory is no longer ours.
    frame_->copy.assign(frame_->bytes.begin(), frame_->bytes.end());
    frame_->bytes = frame_->copy;
  }
}

std::array<std::uint32_t, 3> Link::checksums_of(std::span<const std::byte> bytes) const {
  const bool checks = protection_ == DataProtection::checksums;
  return checks ? crc32c_of_thirds(bytes) : std::array<std::uint32_t, 3>{};
}

// Header and bytes are pieces of their own: the receiver must trust the header before it knows
// where the bytes belong.
void Link::seal(Frame& frame, const DataHeader& header) {
  const auto plain = encode(header);
  if (!encrypts()) {
    std::copy(plain.begin(), plain.end(), frame.header.begin());
    return;
  }
  data_->sealer.seal_piece(plain, frame.header);
  if (frame.bytes.empty()) return;  // a ping or pong
  sealed_.resize(frame.bytes.size() + kPieceTagBytes);
  data_->sealer.seal_piece(frame.bytes, sealed_);
  frame.bytes = sealed_;
}

// The next group in turn.
bool Link::next_frame() {
  if (queues_.empty()) return false;
  auto turn = queues_.upper_bound(last_served_);
  if (turn == queues_.end()) turn = queues_.begin();
  last_served_ = turn->first;
  auto& outgoing = turn->second.front();
  const auto bytes = outgoing.bytes.first(std::min(outgoing.bytes.size(), kMaxDataBytes));
  frame_.emplace();
  frame_->own = turn->first;
  frame_->number = outgoing.key.number;
  frame_->bytes = bytes;
  frame_->length = bytes.size();
  frame_->word = outgoing.sent;
  seal(*frame_, DataHeader{.end = outgoing.to,
                           .key = outgoing.key,
                           .offset = outgoing.offset,
                           .length = static_cast<std::uint32_t>(bytes.size()),
                           .checksums = checksums_of(bytes)});
  outgoing.offset += bytes.size();
  outgoing.bytes = outgoing.bytes.subspan(bytes.size());
  if (outgoing.bytes.empty()) turn->second.pop_front();
  if (turn->second.empty()) queues_.erase(turn);
  return true;
}

void Link::flush_data() {
  std::size_t moved = 0;
  while (!is_lost_ && data_ && moved < kTurnBytes && (frame_ || next_frame())) {
    const auto header = std::span(frame_->header)
                            .first(header_size())
                            .subspan(std::min(frame_->sent, header_size()));
    const auto bytes =
        frame_->bytes.subspan(frame_->sent > header_size() ? frame_->sent - header_size() : 0);
    std::array<iovec, 2> parts{iovec{header.data(), header.size()},
                               iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const auto count = ::sendmsg(data_->socket.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      if (!is_temporary(errno) && errno != EPIPE && errno != ECONNRESET) lose(in_words(errno));
      return;
    }
    moved += static_cast<std::size_t>(count);
    moved_ += static_cast<std::size_t>(count);
    frame_->sent += static_cast<std::size_t>(count);
    if (frame_->sent < header_size() + frame_->bytes.size()) continue;
    if (frame_->word != nullptr) frame_->word->fetch_add(frame_->length);
    frame_.reset();
  }
}

// Reads the bytes of a frame and the header of the next one with one call.
bool Link::receive_data() {
  std::size_t moved = 0;
  while (moved < kTurnBytes && !is_lost_) {
    std::span<std::byte> bytes;
    std::span<std::byte> tag;
    if (incoming_) {
      if (encrypts()) tag = std::span(tag_).subspan(tag_received_);
      const auto* const destination =
          handler_.find_destination(peer_, incoming_->end, incoming_->key);
      if (destination != nullptr) {
        bytes = destination->bytes.subspan(incoming_->offset, incoming_->length);
      } else {
        dropped_.resize(incoming_->length);
        bytes = dropped_;
      }
      bytes = bytes.subspan(incoming_received_);
    }
    const auto header = std::span(header_bytes_).first(header_size()).subspan(header_received_);
    std::array<iovec, 3> parts{iovec{bytes.data(), bytes.size()}, iovec{tag.data(), tag.size()},
                               iovec{header.data(), header.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const auto count = ::recvmsg(data_->socket.number(), &message, MSG_DONTWAIT);
    if (count < 0 && is_temporary(errno)) break;
    if (count <= 0) {
      lose_after_reading(count < 0 ? errno : ECONNRESET);
      break;
    }
    moved += static_cast<std::size_t>(count);
    moved_ += static_cast<std::size_t>(count);
    pulse(ConnectionKind::data).last_heard = Clock::now();
    const auto of_bytes = std::min(static_cast<std::size_t>(count), bytes.size());
    const auto of_tag = std::min(static_cast<std::size_t>(count) - of_bytes, tag.size());
    incoming_received_ += of_bytes;
    tag_received_ += of_tag;
    header_received_ += static_cast<std::size_t>(count) - of_bytes - of_tag;
    if (incoming_ && of_bytes == bytes.size() && of_tag == tag.size()) end_frame();
    if (is_lost_) break;
    if (!incoming_ && header_received_ == header_size()) begin_frame();
  }
  return moved > 0;
}

void Link::begin_frame() {
  const auto bytes = std::span(header_bytes_);
  if (encrypts() && !data_->opener.try_open_piece(bytes.first<kDataHeaderBytes>(),
                                                  bytes.last<kPieceTagBytes>())) {
    return lose("bytes of its connection were changed on the way: a header of data is not its own");
  }
  incoming_ = try_decode_header(bytes.first<kDataHeaderBytes>());
  header_received_ = 0;
  incoming_received_ = 0;
  tag_received_ = 0;
  if (!incoming_) {
    return lose("bytes of its connection were changed on the way: a header of data is invalid");
  }
  if (incoming_->end == kLinkEnd) {
    const auto header = *std::exchange(incoming_, std::nullopt);
    if (header.length > 0) return lose("it sent data that this rank does not expect");
    if (header.key.part == static_cast<std::uint32_t>(LinkNote::ping)) {
      note(ConnectionKind::data, LinkNote::pong);
    }
    return;
  }
  const auto* const destination = handler_.find_destination(peer_, incoming_->end, incoming_->key);
  if (destination == nullptr) return;
  const auto done = destination->received->load(std::memory_order_relaxed);
  if (incoming_->length == 0 || incoming_->offset != done ||
      incoming_->length > destination->bytes.size() - done) {
    lose("it sent data that this rank does not expect");
  }
}

void Link::end_frame() {
  const auto header = *std::exchange(incoming_, std::nullopt);
  incoming_received_ = 0;
  const auto* const destination = handler_.find_destination(peer_, header.end, header.key);
  if (destination == nullptr) {
    if (encrypts()) data_->opener.skip_piece();
    return;
  }
  const auto bytes = destination->bytes.subspan(header.offset, header.length);
  if (encrypts() && !data_->opener.try_open_piece(bytes, tag_)) {
    return lose("bytes of its connection were changed on the way: the tag of data differs");
  }
  if (checksums_of(bytes) != header.checksums) {
    return lose("bytes of its connection were changed on the way: the checksum of data differs");
  }
  // Once all have arrived, the operation may end and take its memory with it.
  auto& received = *destination->received;
  const auto done = header.offset + header.length;
  if (done == destination->bytes.size()) handler_.drop_destination(peer_, header.end, header.key);
  received.store(done, std::memory_order_seq_cst);
}

}  // namespace lockstep
