// The connections to one other process, and the bytes that are on their way. TcpNetwork guards it
// and waits for its sockets.
//
// Terms: a channel is one connection: channel 0 is for messages, channel 1 + s for data, stripe s.
//
// Data are sent in frames of up to kMaxDataBytes. Groups take turns, one frame each; the transfers
// of one group keep their order. Each stripe takes the next frame when its socket has room, so that
// the slowest one does not decide; frames of one transfer may overtake each other on the way. A
// receiver never stops reading: bytes of forgotten transfers are read and dropped.
//
// With StripeThreads, stripes take their turns at the same time, each in one thread, while the
// caller waits. shared_ guards what they share meanwhile: queues_, the frames that arrive, and what
// LinkHandler says of data. A turn that fails says so in its stripe; the caller loses the link.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fabric/network.h"
#include "lockstep/net/seal.h"
#include "lockstep/net/socket.h"
#include "lockstep/tcp/stripe_threads_internal.h"
#include "lockstep/tcp/wire.h"

namespace lockstep {

/// What a link does with what it receives.
class LinkHandler {
 public:
  LinkHandler() = default;
  LinkHandler(const LinkHandler&) = delete;
  LinkHandler& operator=(const LinkHandler&) = delete;
  virtual ~LinkHandler() = default;

  /// Returns false for an invalid message.
  [[nodiscard]] virtual bool handle_message(int peer, std::uint64_t end,
                                            std::span<const std::byte> message) = 0;
  /// Where the bytes of a transfer belong.
  struct Destination {
    std::span<std::byte> bytes;  // of the whole transfer
    Network::Word* received = nullptr;
    std::map<std::uint64_t, std::uint64_t> ahead = {};  // of later bytes: begin and end
  };
  /// nullptr if no end expects the transfer.
  [[nodiscard]] virtual Destination* find_destination(int peer, std::uint64_t end,
                                                      const TransferKey& key) = 0;
  virtual void drop_destination(int peer, std::uint64_t end, const TransferKey& key) = 0;
  /// Whether bytes of a transfer that no end expects may still arrive: the transfer was forgotten,
  /// or the end is closed.
  [[nodiscard]] virtual bool may_arrive_late(std::uint64_t end, const TransferKey& key) const = 0;
};

/// How data are protected on their way; equal in both processes.
enum class DataProtection {
  none,       // by the checksums of TCP
  checksums,  // CRC-32C
  encrypted,  // AES-256-GCM
};

class Link {
 public:
  using Clock = std::chrono::steady_clock;

  Link(int peer, LinkHandler& handler, DataProtection protection, StripeThreads* threads = nullptr)
      : peer_(peer), handler_(handler), protection_(protection), threads_(threads) {}

  /// An authenticated connection, with the keys of its messages.
  struct Connection {
    Socket socket;
    Sealer sealer;
    Opener opener;
  };
  /// Ignores a connection that does not fit the earlier ones. Returns whether it was taken.
  bool attach(Connection connection, const Hello& hello);
  /// From now on, what is posted before there is a connection waits for it; it was dropped before.
  void expect_connection() noexcept { expects_connection_ = true; }
  [[nodiscard]] int peer() const noexcept { return peer_; }
  /// Whether all connections exist.
  [[nodiscard]] bool is_up() const noexcept;
  [[nodiscard]] bool is_lost() const noexcept { return is_lost_; }
  [[nodiscard]] const std::string& loss() const noexcept { return loss_; }
  [[nodiscard]] static int channel_of(const Hello& hello) noexcept {
    return hello.kind == ConnectionKind::messages ? 0 : 1 + hello.stripe;
  }
  [[nodiscard]] int num_channels() const noexcept { return 1 + static_cast<int>(stripes_.size()); }
  /// -1 if there is none.
  [[nodiscard]] int descriptor(int channel) const noexcept;

  void post(std::uint64_t end, std::span<const std::byte> message);
  struct Outgoing {
    std::uint64_t to = 0;
    TransferKey key = {};
    std::uint64_t offset = 0;
    std::span<const std::byte> bytes = {};
    Network::Word* sent = nullptr;
  };
  void send(std::uint64_t own, const Outgoing& outgoing);
  /// Forgets the transfers of `own`, with this number or all.
  void forget(std::uint64_t own, std::optional<std::uint64_t> number);

  /// Moves what the sockets accept, up to a limit per call. With threads, of the stripes that were
  /// put off, and also what they offer.
  void flush();
  /// Returns whether there was something.
  bool receive(int channel);
  /// Whether stripes are served by several threads.
  [[nodiscard]] bool has_threads() const;
  /// With threads: leaves a stripe that is ready to flush(), which serves all of these at the same
  /// time.
  void put_off(int channel);
  /// Bytes of data that the sockets have accepted and offered so far.
  [[nodiscard]] std::uint64_t moved() const noexcept { return moved_; }
  /// Whether bytes wait for the socket.
  [[nodiscard]] bool has_output(int channel) const noexcept;
  /// Whether something waits for the connection.
  [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty() || !queues_.empty(); }
  /// Whether everything sent through the connections has arrived at the other machine.
  [[nodiscard]] bool is_delivered() const noexcept;

  /// Does not count `silence` in watch().
  void excuse(Clock::duration silence) noexcept;
  /// Pings a peer through a silent connection, and loses one that does not answer for `limit`.
  void watch(Clock::time_point now, Clock::duration limit);
  /// Whether the peer has closed this connection, or it was reset. Nothing more is read from it.
  [[nodiscard]] bool has_ended(int channel) const noexcept;
  /// Whether some connections have ended, and the others may.
  [[nodiscard]] bool is_ending() const noexcept { return first_end_ && !is_lost_; }
  /// Loses a peer of whose connections only some have ended for a while.
  void watch_ends(Clock::time_point now);
  void lose(std::string why);

 private:
  // A header as it travels: encrypted, its tag follows.
  using HeaderOnWire = std::array<std::byte, kDataHeaderBytes + kPieceTagBytes>;
  // A frame of which some bytes may have been sent.
  struct Frame {
    std::uint64_t own = 0;
    std::uint64_t number = 0;
    HeaderOnWire header;
    std::span<const std::byte> bytes;  // as they travel
    std::vector<std::byte> copy;       // of `bytes`, if the transfer was forgotten meanwhile
    std::size_t sent = 0;              // of header and bytes
    std::size_t length = 0;            // of the transfer's bytes in it
    Network::Word* word = nullptr;
  };
  struct Pulse {
    Clock::time_point last_heard = Clock::now();
    Clock::time_point last_ping = last_heard;
    bool acknowledges = true;  // the peer's machine, everything, when that was last seen
    bool has_ended = false;
  };
  // Of a turn of a stripe: its connection has ended, or the link is to be lost.
  struct Failure {
    int error_number = 0;
    std::string why = {};
  };
  // A connection of data.
  struct Stripe {
    int channel = 0;
    std::optional<Connection> connection;  // until the link is lost
    Pulse pulse = {};
    std::optional<Clock::time_point> stalled_since = {};  // sends again, not acknowledged

    std::deque<LinkNote> notes = {};  // to be sent before other frames
    std::optional<Frame> frame = {};
    std::vector<std::byte> sealed = {};  // the encrypted bytes of the frame

    HeaderOnWire header_bytes = {};
    std::size_t header_received = 0;
    std::optional<DataHeader> incoming = {};  // whose bytes arrive
    std::size_t incoming_received = 0;
    std::span<std::byte> transfer = {};  // to which the bytes belong; empty: they are dropped
    std::array<std::byte, kPieceTagBytes> tag = {};  // of the bytes that arrive, if encrypted
    std::size_t tag_received = 0;
    std::vector<std::byte> dropped = {};  // destination of bytes that are dropped

    bool is_ready = false;   // takes a turn at the next flush
    bool has_input = false;  // and receives in it
    std::optional<Failure> failure = {};
  };

  [[nodiscard]] static bool is_temporary(int error_number) noexcept {
    return error_number == EAGAIN || error_number == EINTR;
  }
  void flush_messages();
  void flush_data();
  void flush_in_turn();
  void flush_at_once();
  void run_turn(Stripe& stripe);
  static void fail(Stripe& stripe, std::string why) { stripe.failure = {.why = std::move(why)}; }
  void settle(Stripe& stripe);
  [[nodiscard]] std::unique_lock<std::mutex> lock_shared() {
    return is_forked_ ? std::unique_lock(shared_) : std::unique_lock<std::mutex>();
  }
  /// Sends a part of the next frame. Returns its bytes; 0 if there is none, or no room.
  std::size_t send_some(Stripe& stripe);
  [[nodiscard]] bool next_frame(Stripe& stripe);
  void seal(Stripe& stripe, const DataHeader& header);
  [[nodiscard]] bool encrypts() const noexcept { return protection_ == DataProtection::encrypted; }
  [[nodiscard]] std::size_t header_size() const noexcept {
    return kDataHeaderBytes + (encrypts() ? kPieceTagBytes : 0);
  }
  [[nodiscard]] std::array<std::uint32_t, 3> checksums_of(std::span<const std::byte> bytes) const;
  bool receive_messages();
  bool receive_data(Stripe& stripe);
  void begin_frame(Stripe& stripe);
  [[nodiscard]] bool is_expected(const Stripe& stripe, const LinkHandler::Destination* destination);
  [[nodiscard]] LinkHandler::Destination* destination_of(const Stripe& stripe);
  void end_frame(Stripe& stripe, LinkHandler::Destination* destination);
  void end(int channel, int error_number);
  void ask_others();
  void read_rest();
  void note(int channel, LinkNote note);
  [[nodiscard]] const Pulse& pulse(int channel) const noexcept;
  [[nodiscard]] Pulse& pulse(int channel) noexcept {
    return const_cast<Pulse&>(std::as_const(*this).pulse(channel));
  }
  struct Sample;  // what the kernel states of a connection
  /// Whether messages arrive while no data are acknowledged, for half of `limit`. Called often.
  [[nodiscard]] bool drops_large_packets(Stripe& stripe, const Sample& sample,
                                         Clock::time_point now, Clock::duration limit);

  const int peer_;
  LinkHandler& handler_;
  const DataProtection protection_;
  StripeThreads* const threads_;  // may be null
  std::mutex shared_;
  bool is_forked_ = false;  // changes only while no other thread takes a turn
  std::optional<Connection> messages_;
  std::vector<std::unique_ptr<Stripe>> stripes_;  // null: not connected yet
  std::size_t last_stripe_ = 0;                   // that has sent
  bool is_lost_ = false;
  std::optional<Clock::time_point> first_end_;  // of a connection
  Clock::time_point last_open_;                 // another one was, after the first end
  bool has_answered_ = false;                   // the peer, since the first end
  bool said_why_ = false;                       // to the peer, before this link is lost
  bool said_farewell_ = false;                  // the peer
  std::string loss_;
  Pulse pulse_of_messages_;

  bool expects_connection_ = false;
  std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> unsent_;  // messages, by end
  std::vector<std::byte> message_output_;
  std::size_t message_output_sent_ = 0;
  std::map<std::uint64_t, std::deque<Outgoing>> queues_;  // by end of this process
  std::uint64_t last_served_ = 0;                         // end
  std::atomic<std::uint64_t> moved_ = 0;                  // of data, both directions
};

}  // namespace lockstep
