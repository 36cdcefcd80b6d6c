// The network of an MPI communicator, for the groups of one world.
//
// Terms: a packet is one MPI message. It holds a message of an end or a piece of up to
// kMaxPieceBytes of a transfer; an empty one is the farewell of its sender. The packets of a peer
// arrive in order, which MPI guarantees: the message that a rank has left a group must not arrive
// before the data that it has sent. So a message waits behind data that are on their way, at most
// kMostPiecesOnTheWay pieces.
//
// Packets are copies. MPI cannot cancel what it has begun to send or receive, but after forget() no
// memory of a transfer may be accessed; so MPI knows only memory of this object.
//
// All MPI calls are made with the lock held, as MPI_THREAD_SERIALIZED requires. MPI has no wait
// that ends at a deadline or when another thread has something to send, so waiting threads sleep
// between polls, from 20 µs to 1 ms.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/fabric/network.h"
#include "lockstep/rendezvous/group_registry.h"

namespace lockstep {

enum class MpiProgress {
  thread,   // a thread moves data while no caller does; needs MPI_THREAD_SERIALIZED
  callers,  // data move only inside calls
};

[[nodiscard]] std::string mpi_error_in_words(int error);

class MpiNetwork final : public Network, private GroupRegistryMember {
 public:
  static constexpr std::size_t kMaxPieceBytes = 256U << 10;
  static_assert(kMaxPieceBytes + kMaxMessageBytes < std::numeric_limits<int>::max(),
                "the counts of MPI are of type int");

  /// Owns `communicator`, whose ranks are the global ranks. `processes` are those of the ranks on
  /// this host. Uses `registry` in the constructor only.
  MpiNetwork(MPI_Comm communicator, const std::vector<std::optional<ProcessIdentity>>& processes,
             GroupRegistry& registry, MpiProgress progress);
  /// Returns when all peers have ended their networks too, or after two seconds. MPI_Finalize does
  /// the same, if it is called before.
  ~MpiNetwork() override;

  [[nodiscard]] std::uint64_t open(NetworkEnd& end) override;
  void close(std::uint64_t end) noexcept override;
  void post(int peer, std::uint64_t to, std::span<const std::byte> message) override;
  void expect(int peer, std::uint64_t own, const TransferKey& key, std::span<std::byte> bytes,
              Word& received) override;
  void send(int peer, std::uint64_t to, std::uint64_t own, const TransferKey& key,
            std::uint64_t offset, std::span<const std::byte> bytes, Word& sent) override;
  void forget(std::uint64_t own, std::uint64_t number) noexcept override;
  void forget_all(std::uint64_t own) noexcept override;
  [[nodiscard]] bool settles() const noexcept override { return has_thread_; }
  void poll() override;
  void wait(Deadline until) override;
  [[nodiscard]] bool is_lost(int peer) const noexcept override;
  [[nodiscard]] std::string loss_of(int peer) const override;
  [[nodiscard]] double thread_seconds() noexcept override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Bytes = std::vector<std::byte>;

  struct Packet {
    int peer = 0;
    bool is_sent = false;  // else received
    bool is_done = false;
    Bytes bytes = {};
    // Of a sent piece: its transfer, and the word to raise when MPI has sent it; null if forgotten.
    std::uint64_t own = 0;  // end; 0: not a piece
    std::uint64_t number = 0;
    std::size_t length = 0;
    Word* sent = nullptr;
  };
  // A part of a transfer that is not in packets yet.
  struct Outgoing {
    std::uint64_t to = 0;
    TransferKey key = {};
    std::uint64_t offset = 0;
    std::span<const std::byte> bytes = {};
    Word* sent = nullptr;
  };
  struct Peer {
    std::map<std::uint64_t, std::deque<Outgoing>> queues;  // by end of this process
    std::uint64_t last_served = 0;                         // end
    int packets_on_the_way = 0;                            // sent by this rank
    int pieces_on_the_way = 0;                             // of them, pieces of transfers
    std::deque<std::shared_ptr<Packet>> arriving;
    bool said_farewell = false;
    std::optional<std::string> loss;  // set: lost
  };
  struct Destination {
    std::span<std::byte> bytes;
    Word* received = nullptr;
  };
  struct End {
    NetworkEnd* end = nullptr;
    bool is_cut_off = false;
    std::map<std::pair<int, TransferKey>, Destination> expected;  // by peer and transfer
    std::set<std::uint64_t> forgotten;                            // numbers of transfers
  };

  void try_advance() noexcept override {}
  [[nodiscard]] std::optional<std::string> awaits_this_rank(int /*global_rank*/) override {
    return std::nullopt;
  }

  // With mutex_ held.
  void post_locked(int peer, std::uint64_t to, std::span<const std::byte> message);
  bool move();
  void complete_requests();
  void begin_receives();
  [[nodiscard]] bool handle_arrivals();
  [[nodiscard]] bool handle_packet(int peer, std::span<const std::byte> bytes);
  void send_pieces(int rank, Peer& peer);
  void forget_pieces(std::uint64_t own, std::optional<std::uint64_t> number);
  void send_packet(Packet content);
  void track(MPI_Request request, std::shared_ptr<Packet> packet);
  void lose(int peer, std::string why);
  [[nodiscard]] Bytes packet_of(std::span<const std::byte> header,
                                std::span<const std::byte> content);
  [[nodiscard]] Bytes buffer(std::size_t bytes);
  void give_back(Bytes bytes);
  [[nodiscard]] bool is_at_rest() const;

  void shut_down();
  void settle();
  void run(const std::stop_token& stop);

  const bool has_thread_;
  MPI_Comm communicator_;
  int finalize_key_ = MPI_KEYVAL_INVALID;  // an attribute whose removal ends this network
  std::vector<std::shared_ptr<const FileDescriptor>> watches_;  // by rank; null: another host
  const std::shared_ptr<GroupList> groups_;
  const PostMessage post_;  // for ends; with mutex_ held
  mutable std::mutex mutex_;
  std::map<int, Peer> peers_;                     // mutex_; those with any contact
  std::map<std::uint64_t, End> ends_;             // mutex_
  std::uint64_t last_end_ = 0;                    // mutex_; 0 is the network itself
  std::vector<MPI_Request> requests_;             // mutex_
  std::vector<std::shared_ptr<Packet>> tracked_;  // mutex_; by request
  std::vector<Bytes> spare_;                      // mutex_
  bool is_down_ = false;                          // mutex_
  std::atomic<std::uint64_t> polls_ = 0;          // by callers
  std::atomic<int> waiting_ = 0;                  // threads in wait()
  std::atomic<int> idle_waits_ = 0;               // since something has moved
  std::mutex resting_mutex_;
  std::condition_variable_any resting_;
  std::jthread thread_;  // last
};

}  // namespace lockstep
