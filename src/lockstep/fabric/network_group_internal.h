// The state of a group between hosts, in one process: what the other ranks have published, as the
// network delivers it, and what this rank publishes. The control plane and the data plane of the
// group share it.
//
// Order: everything that a message states is written before the counter is raised that announces
// it, as in shared memory. A rank enters call n + kMaxCallsInFlight only when all ranks have
// completed call n, so that no record is overwritten while it is read.
//
// If the ranks of a host share memory, the rank that enters a call last posts the headers of its
// host to the other hosts, in one message (network_headers.cpp).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/host_headers_internal.h"
#include "lockstep/fabric/network.h"
#include "lockstep/fabric/network_message.h"

namespace lockstep {

using Bytes = std::vector<std::byte>;

// The input that `to` needs of a call, if inputs travel with it. If messages are relayed, `to` is
// the rank itself: all receive the same.
using InlineInput = std::span<const std::byte> (*)(const Call& call, int rank, int to);

// How a message reaches all other ranks: one is posted to each of them, or the ranks relay it to
// their partners (relay.h). Then a rank needs few connections, and the loss of any rank, which no
// longer relays, is fatal to the group.
enum class ToAll { direct, relayed };

// For the headers of the other ranks of a host.
constexpr std::chrono::milliseconds kHeaderPatience{100};

class NetworkGroup final : public NetworkEnd {
 public:
  using Word = Network::Word;

  struct Offer {
    std::uint64_t number = 0;
    Message message = {};
    bool is_inline = false;
    Bytes bytes = {};
  };

  /// `hosts`: by rank, if the ranks of a host share memory; otherwise empty.
  NetworkGroup(std::shared_ptr<Network> network, int rank, std::vector<int> global_ranks,
               ToAll to_all = ToAll::direct, std::vector<int> hosts = {});
  ~NetworkGroup() override;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(global_ranks_.size()); }
  /// The number of this end; the other ranks need it before this rank can receive.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Sets the numbers of the ends of all ranks. Only then can this rank post and relay messages.
  void set_ends(std::vector<std::uint64_t> ends);
  [[nodiscard]] bool relays() const noexcept { return to_all_ == ToAll::relayed; }
  /// The ranks to which this one posts what goes to all: all others, or its partners.
  [[nodiscard]] std::vector<int> first_peers() const;

  [[nodiscard]] bool receive(int peer, std::span<const std::byte> message,
                             const PostMessage& post) override;
  void lose(int peer, const std::string& why, const PostMessage& post) override;
  void settle(const PostMessage& post) override;
  void pass_turn() override;

  /// Whether the ranks of this host combine their headers. Then share_headers() is called before
  /// this rank enters a call.
  [[nodiscard]] bool combines_headers() const;
  void share_headers(std::shared_ptr<RegisteredMemory> memory);

  // What this rank publishes.
  [[nodiscard]] CallRecord& own_record(std::uint64_t number) noexcept;
  void enter(std::uint64_t number, std::uint64_t signature);
  void complete(std::uint64_t number) noexcept;
  void publish_completed();
  /// This rank is about to sleep: others may wait for what it has not published.
  void publish_before_sleep() {
    publish_late_headers(post_);
    if (!relays()) publish_completed();  // otherwise settle() does, with fewer messages
  }
  void set_standing(Standing standing);
  void fail(const Cause& cause);
  void set_waits_in(std::uint64_t number);
  void post(int to, const NetworkMessage& message);
  /// The input of the call that this rank enters next; `input_of` is null if it does not travel
  /// with the call.
  void set_next_input(const Call& call, InlineInput input_of) noexcept;

  // What the other ranks have published.
  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const CallRecord& record(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] std::uint64_t signature(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] std::span<const std::byte> input(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] Standing standing(int rank) const noexcept;
  [[nodiscard]] Cause cause(int rank) const;
  /// Whether `rank` is lost to this rank or, as another one has published, to that one.
  [[nodiscard]] bool is_lost(int rank) const;
  /// Why; empty if it ended in order.
  [[nodiscard]] std::string loss_of(int rank) const;
  [[nodiscard]] std::uint64_t waits_in(int rank) const noexcept;
  /// The phases that `rank` has ended, as it has stated to this rank.
  [[nodiscard]] const Word& phases(int rank) const noexcept;
  /// The number of ranks that have given up the group.
  [[nodiscard]] const Word& failures() const noexcept { return failures_; }

  // Messages between two ranks. `arrivals` grows with every offer, claim and answer of a rank.
  [[nodiscard]] const Word& arrivals(int rank) const noexcept { return peer(rank).arrivals; }
  [[nodiscard]] const Word& answered(int rank) const noexcept { return peer(rank).answered; }
  [[nodiscard]] std::optional<Offer> try_match(int from, int tag);
  [[nodiscard]] bool is_claimed(int by, std::uint64_t number);
  [[nodiscard]] std::optional<bool> try_answer(int of, std::uint64_t number);

  // Data.
  void expect(int from, const TransferKey& key, std::span<std::byte> bytes, Word& received);
  void send(int to, const TransferKey& key, std::uint64_t offset, std::span<const std::byte> bytes,
            Word& sent);
  void forget(std::uint64_t number) noexcept { network_->forget(number_, number); }
  void forget_all() noexcept { network_->forget_all(number_); }
  [[nodiscard]] Network& network() noexcept { return *network_; }
  [[nodiscard]] int global_rank(int rank) const { return global_ranks_[index_of(rank)]; }

  /// Memory for the data of one call, not initialized. Kept for later calls: fresh pages cost more
  /// than a copy.
  [[nodiscard]] Bytes borrow(std::size_t bytes);
  void give_back(Bytes memory) noexcept;

 private:
  struct Call64 {  // of one call in flight
    CallRecord record = {};
    std::uint64_t signature = 0;
    Bytes input = {};
  };
  struct Peer {
    std::array<Call64, kMaxCallsInFlight> calls;
    std::map<std::uint64_t, Call64> early = {};  // the header of a call before has not arrived
    std::atomic<Standing> standing = Standing::joining;
    std::atomic<std::uint64_t> waits_in = 0;
    Word arrivals = 0;
    Word answered = 0;
    std::atomic<bool> is_met = false;            // it and this rank exchange data
    std::atomic<bool> is_lost = false;           // as another rank has published
    std::string loss = {};                       // mutex_; why
    Cause cause = {};                            // mutex_
    std::map<int, std::deque<Offer>> offers;     // mutex_; by tag
    std::map<std::uint64_t, bool> claims = {};   // mutex_
    std::map<std::uint64_t, bool> answers = {};  // mutex_
  };

  static std::size_t index_of(int rank) noexcept { return static_cast<std::size_t>(rank); }
  [[nodiscard]] Peer& peer(int rank) const noexcept { return *peers_[index_of(rank)]; }
  void raise(int rank, Condition::Of of, std::uint64_t value) noexcept;
  [[nodiscard]] int rank_of(int global_rank) const noexcept;  // -1: not in this group
  void post_to_all(const NetworkMessage& message);
  void post_to_all(const NetworkMessage& message, const PostMessage& post);
  void handle(int rank, const NetworkMessage& message);
  [[nodiscard]] bool handle_entered(int rank, const NetworkMessage& message);

  void meet(int rank) noexcept { peer(rank).is_met.store(true, std::memory_order_relaxed); }

  // network_headers.cpp
  [[nodiscard]] bool is_on_own_host(int rank) const;
  [[nodiscard]] bool claim_turn();
  void enter_on_host(NetworkMessage header, bool posts_own);
  void post_to_other_hosts(std::span<const NetworkMessage> headers, const PostMessage& post);
  void post_own_headers(const std::vector<Bytes>& headers, const PostMessage& post);
  void publish_late_headers(const PostMessage& post,
                            std::chrono::milliseconds patience = kHeaderPatience);
  [[nodiscard]] bool handle_host_entered(int sender, const NetworkMessage& message);

  // network_relays.cpp
  [[nodiscard]] bool is_news(int origin, const NetworkMessage& message) const noexcept;
  [[nodiscard]] bool handle_relayed(int sender, const NetworkMessage& envelope,
                                    std::span<const std::byte> message, const PostMessage& post);
  void relay_to(std::span<const int> ranks, std::span<const std::byte> message,
                const PostMessage& post);
  void post_relayed(int origin, const NetworkMessage& message, const PostMessage& post);
  void publish_long_wait(const PostMessage& post);

  const int rank_;
  const std::vector<int> global_ranks_;
  const ToAll to_all_;
  const std::vector<int> partners_;  // if messages are relayed
  const std::vector<int> hosts_;     // by rank; may be empty
  std::vector<std::uint64_t> ends_;  // by rank; written once, before has_ends_
  std::atomic<bool> has_ends_ = false;
  std::shared_ptr<Network> network_;
  const PostMessage post_;
  std::unique_ptr<HostHeaders> headers_;  // set before this rank enters a call; may be null
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; own state included
  std::vector<Word> words_;                   // three per rank
  const Counters counters_;
  Word failures_ = 0;
  Word completed_ = 0;            // by this rank
  Word completed_published_ = 0;  // of these
  std::atomic<bool> is_over_ = false;
  Call next_call_ = {};  // set_next_input
  InlineInput next_input_ = nullptr;
  std::vector<Bytes> spare_;  // mutex_
  struct Waiting {
    std::vector<int> ranks;
    Bytes message;
  };
  std::vector<Waiting> waiting_;  // mutex_; to be relayed once there are ends
  struct LongWait {
    std::uint64_t number = 0;  // the call in which this rank sleeps
    std::uint64_t published = 0;
    std::chrono::steady_clock::time_point since = {};
  };
  LongWait long_wait_ = {};   // used by settle() only
  std::uint64_t number_ = 0;  // last: opens the end
};

}  // namespace lockstep
