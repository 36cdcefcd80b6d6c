// What moves and reduces spans among the ranks of a group: numbers the calls, compares them across
// ranks, waits, reports stalls, names the rank that failed, keeps a flight recorder. Written once
// for all transports: how ranks hear of each other is a ControlPlane, how data moves a DataPlane.
//
// Terms: the group's ranks are numbered from 0; a rank's number in the world is its global rank,
// and messages name ranks by it. An operation is a call, a send or a receive that has begun.
//
// Progress is made by the caller: start() does what can be done at once and returns; advance(),
// done() and wait() continue. No thread works behind the caller's back. Threads may share a group;
// they take turns.
//
// Failure: once a rank is lost, late, or makes another call than the rest, the operation and every
// later verb throw PeerError with the first cause. The process can continue: registered memory
// stays readable and writable, private from then on, and a new group can be made.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/log.h"
#include "lockstep/fabric/call.h"
#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/flight_recorder.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

struct GroupOptions {
  std::string name = "world";                      // of the group, in messages
  std::chrono::milliseconds timeout{600'000};      // a rank may be evaluating
  std::chrono::milliseconds stall_report{10'000};  // a wait that takes longer is reported once
};

class Group final : private GroupRegistryMember {
 public:
  /// The group of `membership` over its planes. Collective; returns when every rank is present.
  /// `connect` makes the planes of the groups that split() gives.
  Group(Membership membership, Planes planes, const GroupOptions& options, Connect connect);
  ~Group() override;

  [[nodiscard]] int rank() const noexcept { return membership_.rank; }
  [[nodiscard]] int size() const noexcept { return membership_.size(); }
  [[nodiscard]] int global_rank(int rank) const;
  /// The transport: "shm".
  [[nodiscard]] std::string kind() const { return data_->kind(); }
  /// Why that transport was chosen; empty where it was not a choice.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Why the transport cannot use memory of `device`, and what to do; nothing: it can.
  [[nodiscard]] std::optional<std::string> refusal_of(const Device& device) const {
    return data_->refusal_of(device);
  }

  /// Begins `call`.
  /// Collective: every rank starts an equal call, in the same order. Returns without waiting for
  /// the others, unless kMaxCallsInFlight earlier ones are not done. The spans belong to the group
  /// until the operation is done; `keep` lives that long too.
  /// Throws UsageError for an invalid call (call.h); PeerError.
  [[nodiscard]] std::shared_ptr<Operation> start(const Call& call,
                                                 std::shared_ptr<const void> keep);

  /// Begins to send or receive (data_plane.h has the order). A send is done when the receiver has
  /// the data. Throws UsageError for a rank that does not exist, or a span that is not `count`
  /// elements long; PeerError, also from the operation where the two sides differ.
  [[nodiscard]] std::shared_ptr<Operation> send(const Message& message,
                                                std::span<const std::byte> bytes,
                                                std::shared_ptr<const void> keep);
  [[nodiscard]] std::shared_ptr<Operation> receive(const Message& message,
                                                   std::span<std::byte> bytes,
                                                   std::shared_ptr<const void> keep);

  /// Does what can be done for all operations without waiting.
  void advance();
  /// Advances; true when the operation is done.
  [[nodiscard]] bool done(Operation& operation);
  /// Returns when the operation is done. Throws PeerError when it cannot be, or is not by the
  /// deadline; without one the group's own timeout counts from now.
  void wait(Operation& operation, std::optional<Deadline> deadline = {});

  /// New memory, zeroed, `bytes` for each rank. Collective; returns when every rank has it.
  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes,
                                                           const Device& device = {});

  /// The group of the ranks that give the same `color`, ordered by key, then by rank. Collective.
  [[nodiscard]] std::shared_ptr<Group> split(int color, int key);

 private:
  using Lock = std::unique_lock<std::mutex>;
  class ParentIntroductions;

  void try_advance() noexcept override;
  [[nodiscard]] std::optional<std::string> awaits_this_rank(int global_rank) override;

  // All with mutex_ held; those that wait let go of it while they sleep.
  std::shared_ptr<CallOperation> start_call(const Call& call, std::shared_ptr<const void> keep);
  // Waits until the ring has room for it.
  [[nodiscard]] std::uint64_t number_of_next_call();
  std::shared_ptr<Operation> start_message(std::shared_ptr<MessageOperation> operation,
                                           std::shared_ptr<const void> keep);
  void wait_for(Operation& operation, std::optional<Deadline> deadline);
  void advance_all();
  // `is_whole`: no rank has given the group up; else the oldest call alone moves.
  void move_all(bool is_whole);
  void begin(CallOperation& operation);
  /// True when all ranks' memory_words are known to be equal too.
  bool expect_equal_calls(const CallOperation& operation);
  [[nodiscard]] Awaited entered(const CallOperation& operation) const noexcept;
  [[nodiscard]] Awaited blocker_of(const Operation& operation) const noexcept;
  // What each rank says, `bytes` long, in a call of kind split.
  // Returns the number of the call.
  std::uint64_t gather(std::span<const std::byte> own, std::span<std::byte> all,
                       std::string_view name);

  // What a wait goes through: spin, yield, sleep; each sleep ends in a look at the others.
  struct Wait {
    std::optional<Deadline> deadline = {};
    std::optional<std::chrono::steady_clock::time_point> since = {};  // of the first sleep
    bool reported = false;
    bool cycle_reported = false;
  };
  void wait_a_little(const Awaited& awaited, int rank, Wait& wait);
  void look_at_others(const Awaited& awaited, Wait& wait);
  // What a rank that has not completed call `number` says of the group's failure.
  static constexpr auto kEveryCall = std::numeric_limits<std::uint64_t>::max();
  [[nodiscard]] std::optional<Cause> reported_failure(std::uint64_t number = kEveryCall) const;
  [[nodiscard]] std::optional<Cause> find_failure(const Awaited& awaited) const;
  [[nodiscard]] std::string call_in_words(int rank, std::uint64_t number) const;
  [[nodiscard]] std::string last_call_in_words(int rank) const;
  [[nodiscard]] std::string rank_in_words(int rank) const;
  [[nodiscard]] std::string what_waits() const;

  void expect_usable() const;
  void expect_usable_memory(const Device& device) const;
  [[noreturn]] void fail(const Cause& cause);
  void write_flight_recorder(const std::string& cause) const noexcept;

  const Membership membership_;
  const GroupOptions options_;
  const Connect connect_;
  const std::string reason_;
  const Log log_;
  std::mutex allocating_;  // taken before mutex_: memory is handed out in one order
  std::mutex mutex_;       // guards all that follows
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<DataPlane> data_;
  const TreePlan tree_;
  const bool uses_cpu_memory_;
  bool oversubscribed_ = false;
  std::uint64_t calls_ = 0;                       // entered
  std::uint64_t room_until_ = kMaxCallsInFlight;  // calls up to this number have a record
  int splits_ = 0;
  std::deque<std::shared_ptr<CallOperation>> queue_;       // calls not completed, oldest first
  std::list<std::shared_ptr<MessageOperation>> messages_;  // not done, oldest first
  FlightRecorder recorder_;
  std::optional<Cause> failure_;
  std::chrono::steady_clock::time_point last_look_{};
};

/// The group of all ranks of `world`, whose planes `connect` makes.
/// Collective: every rank of the world calls this, in the same order as its other groups. Returns
/// when all have come. Throws what `connect` throws; PeerError when a rank is lost or late.
[[nodiscard]] std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                                const Connect& connect);

}  // namespace lockstep
