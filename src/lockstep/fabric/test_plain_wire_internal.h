// For tests. The connections of the plain transport (test_plain_transport_internal.h): one Unix
// socket to every other rank, frames on it, and the state that this rank has received from each.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"

namespace lockstep {

using PlainBytes = std::vector<std::byte>;

struct PlainFrame {
  enum class Kind : std::uint64_t {
    entered,
    phases,
    completed,
    standing,
    failed,
    waits,
    data,
    message,
    answer
  };
  Kind kind = Kind::entered;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  Message message = {};
  std::uint64_t bytes = 0;  // length of the data that follows the frame
};

// The state of the other ranks as known to this rank, and the bytes in flight. Thread-safe.
class PlainWire {
 public:
  using Word = std::atomic<std::uint64_t>;
  struct ArrivedMessage {
    PlainFrame frame;
    PlainBytes bytes;
  };
  struct Peer {
    FileDescriptor socket;
    PlainBytes incoming;
    PlainBytes outgoing;
    std::size_t sent = 0;  // of outgoing
    std::array<CallRecord, kMaxCallsInFlight> records;
    std::array<std::uint64_t, kMaxCallsInFlight> signatures{};
    std::atomic<Standing> standing = Standing::joining;
    Cause cause;
    std::atomic<std::uint64_t> waits_in = 0;
    std::atomic<bool> closed = false;
    std::map<std::uint64_t, PlainBytes> data;            // by call
    std::map<int, std::deque<ArrivedMessage>> messages;  // by tag
    std::map<std::uint64_t, bool> answers;               // by message: accepted or refused
    Word arrivals = 0;                                   // messages and answers
    std::uint64_t queued = 0;                            // bytes for this peer
    Word flushed = 0;                                    // bytes of `queued` that were sent
  };

  PlainWire(int own_rank, int size)
      : rank(own_rank),
        peers(static_cast<std::size_t>(size)),
        words_(static_cast<std::size_t>(size) * 3),
        counters(reinterpret_cast<const std::byte*>(words_.data()), 3 * sizeof(Word), sizeof(Word),
                 size) {}
  ~PlainWire() {
    for (auto limit = Deadline::after(std::chrono::seconds(10));
         !limit.expired() && has_outgoing();) {
      wait_readable(std::chrono::milliseconds(1));
      poll();
    }
  }

  [[nodiscard]] Peer& of(int other) { return peers[static_cast<std::size_t>(other)]; }
  [[nodiscard]] int size() const { return static_cast<int>(peers.size()); }

  void send(int to, PlainFrame frame, std::span<const std::byte> bytes = {}) {
    const std::lock_guard lock(mutex);
    frame.bytes = bytes.size();
    if (to == rank) return handle(rank, frame, {bytes.begin(), bytes.end()});
    auto& peer = of(to);
    const auto head = std::as_bytes(std::span(&frame, 1));
    peer.outgoing.insert(peer.outgoing.end(), head.begin(), head.end());
    peer.outgoing.insert(peer.outgoing.end(), bytes.begin(), bytes.end());
    peer.queued += head.size() + bytes.size();
    flush(peer);
  }
  void send_to_all(const PlainFrame& frame, std::span<const std::byte> bytes = {}) {
    for (int to = 0; to < size(); ++to) send(to, frame, bytes);
  }
  void poll() {
    const std::lock_guard lock(mutex);
    for (int other = 0; other < size(); ++other) {
      if (other == rank) continue;
      flush(of(other));
      receive(other);
    }
  }
  // Returns when data may have arrived, or after `limit`: another thread may have received it.
  void wait_readable(std::chrono::milliseconds limit) {
    std::vector<pollfd> watched;
    {
      const std::lock_guard lock(mutex);
      for (auto& peer : peers) {
        if (peer.closed || peer.socket.number() < 0) continue;
        const auto events = POLLIN | (peer.outgoing.empty() ? 0 : POLLOUT);
        watched.push_back({peer.socket.number(), static_cast<short>(events), 0});
      }
    }
    (void)::poll(watched.data(), watched.size(), static_cast<int>(limit.count()));
  }

  const int rank;
  std::atomic<std::uint64_t> failures = 0;  // published by other ranks
  std::mutex mutex;
  std::vector<Peer> peers;  // mutex, except atomics and data protected by the order of frames

 private:
  std::vector<Word> words_;

 public:
  const Counters counters;

 private:
  void raise(int of_rank, Condition::Of of, std::uint64_t value) {
    words_[static_cast<std::size_t>(of_rank) * 3 + static_cast<std::size_t>(of)].store(value);
  }
  [[nodiscard]] bool has_outgoing() {
    const std::lock_guard lock(mutex);
    for (const auto& peer : peers) {
      if (!peer.closed && !peer.outgoing.empty()) return true;
    }
    return false;
  }
  static void flush(Peer& peer) {
    while (!peer.outgoing.empty() && !peer.closed) {
      const auto sent = ::send(peer.socket.number(), peer.outgoing.data() + peer.sent,
                               peer.outgoing.size() - peer.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return;  // full, or closed, which the reader will detect
      peer.sent += static_cast<std::size_t>(sent);
      peer.flushed += static_cast<std::uint64_t>(sent);
      if (peer.sent < peer.outgoing.size()) continue;
      peer.outgoing.clear();
      peer.sent = 0;
    }
  }
  void receive(int other) {
    auto& peer = of(other);
    std::array<std::byte, 1 << 16> buffer;
    while (!peer.closed) {
      const auto got = ::recv(peer.socket.number(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
      if (got > 0) peer.incoming.insert(peer.incoming.end(), buffer.begin(), buffer.begin() + got);
      if (got <= 0) {
        handle_whole_frames(other);
        peer.closed = true;  // after its last frame
        ++peer.arrivals;
      }
    }
    handle_whole_frames(other);
  }
  void handle_whole_frames(int other) {
    auto& incoming = of(other).incoming;
    std::size_t at = 0;
    while (incoming.size() - at >= sizeof(PlainFrame)) {
      PlainFrame frame;
      std::memcpy(&frame, incoming.data() + at, sizeof(frame));
      if (incoming.size() - at - sizeof(frame) < frame.bytes) break;
      const auto begin = incoming.begin() + static_cast<std::ptrdiff_t>(at + sizeof(frame));
      handle(other, frame, {begin, begin + static_cast<std::ptrdiff_t>(frame.bytes)});
      at += sizeof(frame) + frame.bytes;
    }
    incoming.erase(incoming.begin(), incoming.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void handle(int other, const PlainFrame& frame, PlainBytes bytes) {
    auto& peer = of(other);
    using Kind = PlainFrame::Kind;
    switch (frame.kind) {
      case Kind::entered:
        std::memcpy(static_cast<void*>(&peer.records[frame.a % kMaxCallsInFlight]), bytes.data(),
                    sizeof(CallRecord));
        peer.signatures[frame.a % kMaxCallsInFlight] = frame.b;
        return raise(other, Condition::Of::entered, frame.a);
      case Kind::phases:
        return raise(other, Condition::Of::phases, frame.a);
      case Kind::completed:
        return raise(other, Condition::Of::completed, frame.a);
      case Kind::failed:
        peer.cause = {static_cast<int>(frame.a),
                      {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
        peer.standing = Standing::failed;
        if (other != rank) ++failures;
        return;
      case Kind::standing:
        peer.standing = static_cast<Standing>(frame.a);
        return;
      case Kind::waits:
        peer.waits_in = frame.a;
        return;
      case Kind::data:
        peer.data[frame.a] = std::move(bytes);
        return;
      case Kind::message:
        peer.messages[frame.message.tag].push_back({frame, std::move(bytes)});
        ++peer.arrivals;
        return;
      case Kind::answer:
        peer.answers[frame.a] = frame.b != 0;
        ++peer.arrivals;
        return;
    }
  }
};

}  // namespace lockstep
