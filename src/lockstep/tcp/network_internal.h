// The TCP connections of this process to the processes of other ranks, shared by all groups of a
// world. Two processes are connected when a group is created, by the one with the higher rank, or
// when one of them first has something for the other, by that one (network_introduction.cpp).
//
// Threads: callers that poll or wait do the work. While no caller does, a thread of this object
// sleeps until a socket is ready, moves its bytes and advances the groups; it answers heartbeats
// too. Then it rests for a few milliseconds, unless much was waiting. While callers do the work, it
// wakes up every few milliseconds only to see whether they still do: to be told would cost every
// wait a system call.
//
// More threads serve the stripes of a peer at the same time, if allow_threads() allows them: for
// the one that holds the lock, which waits for them (StripeThreads).
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/network.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/listener.h"
#include "lockstep/rendezvous/group_registry.h"
#include "lockstep/tcp/link_internal.h"
#include "lockstep/tcp/stripe_threads_internal.h"
#include "lockstep/tcp/wire.h"
#include "lockstep/trace/link_speed.h"

namespace lockstep {

class TcpNetwork final : public Network, private LinkHandler, private GroupRegistryMember {
 public:
  /// Accepts the other ranks at `listeners`, one per interface. Advances `groups` when data
  /// arrives. Opens at least `num_stripes` data connections to another process, and one per
  /// interface of either.
  TcpNetwork(int global_rank, std::vector<Listener> listeners, const Secret& secret,
             std::shared_ptr<GroupList> groups, std::chrono::milliseconds heartbeat,
             DataProtection protection = DataProtection::checksums, int num_stripes = 1);
  /// Says farewell, and returns when the peers have what was sent to them, or after two seconds.
  ~TcpNetwork() override;

  /// The address that the other ranks need, for `end`.
  [[nodiscard]] RankAddress address_of(std::uint64_t end) const;
  /// Returns when this process is connected to `peer`. Throws SystemError naming both addresses,
  /// UsageError if only one of them encrypts data, and any exception of `watch`.
  void connect(int peer, const RankAddress& address, Deadline deadline, const Watch& watch);
  /// Connects to `peer` when one of the two processes first posts or sends to the other. If they
  /// cannot be connected, the peer is lost.
  void introduce(int peer, const RankAddress& address);
  /// Up to `most` threads, that of the caller included, move the bytes of as many stripes at the
  /// same time. Valid for all groups: the first call sets it. Without one, the caller moves them.
  void allow_threads(int most);
  /// What the kernel has counted for the data connections.
  [[nodiscard]] std::vector<LinkCount> counts() const;

  [[nodiscard]] std::uint64_t open(NetworkEnd& end) override;
  void close(std::uint64_t end) noexcept override;
  void post(int peer, std::uint64_t to, std::span<const std::byte> message) override;
  void expect(int peer, std::uint64_t own, const TransferKey& key, std::span<std::byte> bytes,
              Word& received) override;
  void send(int peer, std::uint64_t to, std::uint64_t own, const TransferKey& key,
            std::uint64_t offset, std::span<const std::byte> bytes, Word& sent) override;
  void forget(std::uint64_t own, std::uint64_t number) noexcept override;
  void forget_all(std::uint64_t own) noexcept override;
  void poll() override;
  void wait(Deadline until) override;
  [[nodiscard]] bool is_lost(int peer) const noexcept override;
  [[nodiscard]] std::string loss_of(int peer) const override;
  [[nodiscard]] double thread_seconds() noexcept override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = Link::Clock;

  struct End {
    NetworkEnd* end = nullptr;
    bool is_cut_off = false;
    std::map<std::pair<int, TransferKey>, Destination> expected;  // by peer and transfer
    std::set<std::uint64_t> forgotten;                            // numbers of transfers
  };
  // A connection that has been accepted and is not authenticated yet.
  struct Newcomer {
    Socket socket;
    Handshake handshake;
    std::optional<Sealer> sealer;
    std::optional<Opener> opener;
    Deadline deadline;
  };
  // This process could not open a connection when it was used first. Until then, the peer may.
  struct Failure {
    std::string why;
    Deadline until;
  };
  // Which process has opened a connection.
  enum class Opened { here, there };
  struct Peer {
    std::unique_ptr<Link> link;
    std::optional<RankAddress> address;  // if introduced
    bool is_connecting = false;          // this process is opening connections
    bool is_used = false;                // it will, unless the peer does (used_)
    Opened opened = Opened::here;        // once there is one
    std::optional<Failure> failure;
    bool is_announced = false;             // its loss, to the ends
    std::map<int, std::uint32_t> watched;  // events, by channel
  };
  // Where the events of a descriptor belong.
  struct Source {
    Peer* peer = nullptr;  // null: a newcomer
    int channel = 0;
    std::list<Newcomer>::iterator newcomer = {};
  };

  [[nodiscard]] bool handle_message(int peer, std::uint64_t end,
                                    std::span<const std::byte> message) override;
  [[nodiscard]] Destination* find_destination(int peer, std::uint64_t end,
                                              const TransferKey& key) override;
  void drop_destination(int peer, std::uint64_t end, const TransferKey& key) override;
  [[nodiscard]] bool may_arrive_late(std::uint64_t end, const TransferKey& key) const override;
  void try_advance() noexcept override {}
  [[nodiscard]] std::optional<std::string> awaits_this_rank(int /*global_rank*/) override {
    return std::nullopt;
  }

  // With mutex_ held.
  [[nodiscard]] Peer& peer_of(int peer);
  void handle(int descriptor, std::set<Peer*>& put_off);
  void serve(Peer& peer, std::optional<int> channel);
  void add_threads();
  void accept_newcomers(Listener& listener);
  void handle_newcomer(std::list<Newcomer>::iterator newcomer);
  void attach(Link::Connection connection, const Hello& hello, Opened opened);
  void post_locked(int peer, std::uint64_t to, std::span<const std::byte> message);
  void connect_if_used(int peer, Peer& other);
  void announce_loss(Peer& peer);
  void watch_descriptor(int descriptor, std::uint32_t events, bool is_new);
  void update(Peer& peer);
  void watch_peers();
  void drop(std::list<Newcomer>::iterator newcomer);
  /// Returns the bytes of data that it has moved.
  std::uint64_t move(int num_ready, const epoll_event* ready);

  [[nodiscard]] Link::Connection shake_hands(Socket socket, const std::string& token,
                                             const Hello& hello, Deadline deadline) const;
  [[nodiscard]] Hello hello() const;
  void prepare(int descriptor, int stripe) const;
  [[nodiscard]] HandshakeContext context(const std::string& token) const;
  [[nodiscard]] bool begin_connecting(int peer);
  void stop_connecting(int peer);
  void connect_to(int peer, const RankAddress& address, Deadline deadline,
                  const std::function<void(int descriptor)>& opened = {});
  void connect_used(const std::stop_token& stop);
  void note_failure(int peer, const std::string& why, std::chrono::seconds their_turn);
  void settle();
  void ring() noexcept;
  void rest(const std::stop_token& stop);
  void run(const std::stop_token& stop);

  const int rank_;
  const Secret secret_;
  const std::shared_ptr<GroupList> groups_;
  const std::chrono::milliseconds heartbeat_;
  const DataProtection protection_;
  const std::string token_;
  const int num_stripes_;
  std::vector<Listener> listeners_;
  const std::string congestion_control_;  // the default of this machine
  const std::shared_ptr<const HandshakeKeys> keys_;
  const FileDescriptor epoll_;
  const FileDescriptor bell_;  // an eventfd: wakes threads that wait
  StripeThreads threads_;      // before what they work for
  mutable std::mutex mutex_;
  int most_threads_ = 0;                         // mutex_
  int most_stripes_ = 1;                         // mutex_; of a peer
  std::map<int, Peer> peers_;                    // mutex_; never erased
  std::map<std::uint64_t, End> ends_;            // mutex_
  std::uint64_t last_end_ = kLinkEnd;            // mutex_
  std::list<Newcomer> newcomers_;                // mutex_
  std::unordered_map<int, Source> sources_;      // mutex_; by descriptor
  Clock::time_point last_watch_ = Clock::now();  // mutex_
  bool some_end_ = false;                        // mutex_; not all connections of a peer
  std::uint64_t moved_ = 0;                      // mutex_; bytes of data, both directions
  std::atomic<int> waiting_ = 0;                 // threads in wait()
  std::atomic<std::uint64_t> polls_ = 0;         // by callers
  const PostMessage post_;                       // for ends; with mutex_ held
  std::deque<int> used_;                         // mutex_; peers to connect to
  FileDescriptor connecting_;                    // mutex_; a duplicate of connector_'s socket
  std::condition_variable_any used_changed_;
  std::mutex resting_mutex_;
  std::condition_variable_any resting_;
  std::jthread connector_;  // mutex_; from the first peer on that is introduced
  std::jthread thread_;     // last
};

}  // namespace lockstep
