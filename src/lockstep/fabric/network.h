// The connections of this process to the processes of other ranks, as the planes between hosts use
// them. A network moves messages and data; it knows no calls. One network serves all groups of a
// world in this process.
//
// Terms: a peer is the process of another rank, named by its global rank. An end is one group's end
// of the network in one process; its number is unique in that process and never used again. A
// message is a few bytes that the receiver handles when they arrive. Data are received directly at
// their destination: the receiver expects a transfer before it tells the sender to send it.
//
// Progress: poll() and wait() move what can be moved. A background thread does the same while no
// caller does, so that data move while the callers compute.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "lockstep/base/deadline.h"

namespace lockstep {

/// Sends a message to end `end` of `peer`.
using PostMessage =
    std::function<void(int peer, std::uint64_t end, std::span<const std::byte> message)>;

class NetworkEnd {
 public:
  NetworkEnd() = default;
  NetworkEnd(const NetworkEnd&) = delete;
  NetworkEnd& operator=(const NetworkEnd&) = delete;
  virtual ~NetworkEnd() = default;

  // These are called with the lock of the network held: they call no function of the network.

  /// Handles a message. Messages of one peer arrive in the order in which they were posted. Returns
  /// false for an invalid message: the network then closes the connection to that peer.
  [[nodiscard]] virtual bool receive(int peer, std::span<const std::byte> message,
                                     const PostMessage& post) = 0;
  /// The connection to `peer` has ended (Network::loss_of). Called once per peer, by networks that
  /// have connections of their own.
  virtual void lose(int /*peer*/, const std::string& /*why*/, const PostMessage& /*post*/) {}
  /// Called every few milliseconds, at most 50 apart, also while callers wait: posts what was put
  /// off.
  virtual void settle(const PostMessage& post) = 0;

  /// Called without that lock, when this process enters a call of another end's group: posts what
  /// must arrive before that call.
  virtual void pass_turn() {}
};

/// A transfer between two ends, in one direction.
struct TransferKey {
  std::uint64_t number = 0;
  std::uint32_t part = 0;

  friend auto operator<=>(const TransferKey&, const TransferKey&) = default;
};

/// Thread-safe.
class Network {
 public:
  /// Counts bytes.
  using Word = std::atomic<std::uint64_t>;

  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  /// Registers `end` and returns its number. From then on it may receive messages.
  [[nodiscard]] virtual std::uint64_t open(NetworkEnd& end) = 0;
  /// Forgets the end. After the return, its functions are no longer called.
  virtual void close(std::uint64_t end) noexcept = 0;

  /// Posts a message of at most kMaxMessageBytes, which is copied. Messages to a lost peer are
  /// dropped.
  virtual void post(int peer, std::uint64_t to, std::span<const std::byte> message) = 0;

  /// Expects the bytes of a transfer from `peer` to end `own` in `bytes`. `received` is raised to
  /// the number of bytes that have arrived unchanged, from the first on. Both must stay valid until
  /// all bytes have arrived or forget() has returned.
  virtual void expect(int peer, std::uint64_t own, const TransferKey& key,
                      std::span<std::byte> bytes, Word& received) = 0;
  /// Sends bytes [offset, offset + bytes.size()) of a transfer to end `to` of `peer`, which expects
  /// it. The parts of one transfer are sent in order. `sent` is raised by the number of bytes that
  /// may be overwritten. Both must stay valid as in expect().
  virtual void send(int peer, std::uint64_t to, std::uint64_t own, const TransferKey& key,
                    std::uint64_t offset, std::span<const std::byte> bytes, Word& sent) = 0;
  /// Forgets the transfers of end `own` with this number. After the return, no memory of them is
  /// accessed; bytes that still arrive are dropped.
  virtual void forget(std::uint64_t own, std::uint64_t number) noexcept = 0;
  /// The same for all transfers of the end, those of later calls of send() and expect() included.
  virtual void forget_all(std::uint64_t own) noexcept = 0;

  /// Whether NetworkEnd::settle() is called: not by a network without a background thread.
  [[nodiscard]] virtual bool settles() const noexcept { return true; }
  /// Moves what can be moved without waiting.
  virtual void poll() = 0;
  /// The same; sleeps until something may have arrived, or until `until`. Spurious wakeups occur.
  virtual void wait(Deadline until) = 0;

  /// Whether the connection to `peer` has ended, for whatever reason.
  [[nodiscard]] virtual bool is_lost(int peer) const noexcept = 0;
  /// Why: "its machine does not answer"; empty if the peer closed the connection as it ended.
  [[nodiscard]] virtual std::string loss_of(int peer) const = 0;

  /// The end whose group has entered a call last. Calls of several groups keep their order: what a
  /// rank has entered earlier is seen earlier by every rank of both groups.
  struct Turn {
    std::mutex mutex;
    NetworkEnd* last = nullptr;
  };
  [[nodiscard]] Turn& turn() noexcept { return turn_; }

  /// The processor time of the threads beside the callers so far, in seconds; 0 without any.
  [[nodiscard]] virtual double thread_seconds() noexcept { return 0; }

 private:
  Turn turn_;
};

/// The limit of a message: a call with 16 KiB of input.
constexpr std::size_t kMaxMessageBytes = 20U << 10;

}  // namespace lockstep
