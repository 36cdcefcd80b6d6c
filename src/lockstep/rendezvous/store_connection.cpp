#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "lockstep/base/assert.h"
#include "lockstep/rendezvous/store_connection_internal.h"

namespace lockstep {

std::optional<std::vector<std::byte>> StoreConnection::try_next() {
  for (;;) {
    if (opener_) {
      if (auto message = opener_->try_next()) return message;
    }
    if (ended_ || has_output() || !receive()) return std::nullopt;
  }
}

void StoreConnection::send(std::span<const std::byte> message) {
  LOCKSTEP_ASSERT(sealer_.has_value(), "only an authenticated peer gets an answer");
  output_.push_back(sealer_->seal(message));
}

bool StoreConnection::flush() {
  bool progress = output_.empty();
  while (!output_.empty()) {
    const auto& front = output_.front();
    const auto taken = socket_.try_send(std::span(front).subspan(sent_));
    if (!taken) return progress;
    progress = true;
    sent_ += *taken;
    bytes_sent_ += *taken;
    if (sent_ < front.size()) continue;
    output_.pop_front();
    sent_ = 0;
  }
  return progress;
}

bool StoreConnection::receive() {
  std::array<std::byte, 64u << 10> buffer;  // NOLINT: filled by the kernel
  // During the handshake no more bytes are read than it needs, so an unauthenticated peer occupies
  // no buffer.
  const auto space = std::span(buffer).first(
      handshake_ ? std::min(handshake_->wanted(), buffer.size()) : buffer.size());
  const auto size = socket_.try_receive(space);
  if (!size) return false;
  if (*size == 0) {
    ended_ = true;
    return false;
  }
  if (!handshake_) {
    opener_->feed(space.first(*size));
    return true;
  }
  const auto used = handshake_->feed(space.first(*size));
  LOCKSTEP_ASSERT(used == *size, "the handshake consumes the bytes that it wanted");
  if (auto bytes = handshake_->release_output(); !bytes.empty()) {
    output_.push_back(std::move(bytes));
    flush();
  }
  if (handshake_->done()) {
    const auto keys = handshake_->keys();
    sealer_.emplace(keys.sending);
    opener_.emplace(keys.receiving);
    handshake_.reset();
  }
  return true;
}

void keep_alive(int socket) noexcept {
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 6);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  // The kernel sends no probes while sent bytes are unacknowledged: without this limit it
  // retransmits them for about 15 minutes.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 12'000);
}

}  // namespace lockstep
