// Collectives and messages on spans among the ranks of a group. The group numbers the calls,
// compares them across ranks, waits, reports stalls, names the rank that failed and keeps a flight
// recorder. It is written once for all transports: a ControlPlane publishes the state of the ranks,
// a DataPlane moves data in CPU memory, a DevicePlane data in GPU memory.
//
// Terms: the ranks of a group are numbered from 0. A rank's number in the world is its global rank;
// error messages use global ranks. An operation is a call, a send or a receive that has started.
//
// Progress is made by the calling thread: start() does what is possible and returns; advance(),
// done() and wait() continue. Between hosts, a thread continues while no caller is inside
// (network.h). Several threads may use a group; a lock serializes them. An operation on GPU memory
// is enqueued this way, and its end is awaited with make_wait() or synchronize(). If it fails on
// the device, the next function of the group throws.
//
// Failure: if a rank has ended, is late, or makes a different call than the others, the operation
// and every later function of the group throw PeerError with the first cause. The group is then
// unusable. The process can continue: registered memory stays readable and writable, private to its
// rank from then on, and a new group can be created.
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
  std::string name = "world";                      // of the group, for messages
  std::chrono::milliseconds timeout{600'000};      // long, because a rank may be evaluating
  std::chrono::milliseconds stall_report{10'000};  // a longer wait is reported once
};

class Group final : private GroupRegistryMember {
 public:
  /// Creates the group of `membership` over `planes`. `connect` creates the planes of the groups
  /// that split() returns. Collective. Returns when every rank is present. Throws PeerError.
  Group(Membership membership, Planes planes, const GroupOptions& options, Connect connect);
  ~Group() override;

  [[nodiscard]] int rank() const noexcept { return membership_.rank; }
  [[nodiscard]] int size() const noexcept { return membership_.size(); }
  [[nodiscard]] int global_rank(int rank) const;
  /// The name of the transport: "shm".
  [[nodiscard]] std::string kind() const { return data_->kind(); }
  /// Why that transport was chosen; empty if there was no choice.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// The same for GPU memory: "ipc"; empty before the first call on it.
  [[nodiscard]] std::string device_kind() const { return device_ ? device_->kind() : ""; }
  [[nodiscard]] bool has_device_plane() const noexcept { return device_ != nullptr; }
  [[nodiscard]] std::string device_reason() const { return device_ ? device_->reason() : ""; }
  /// Why the transport does not support memory on `device`, and what to do; nullopt if it does.
  [[nodiscard]] std::optional<std::string> refusal_of(const Device& device) const;
  [[nodiscard]] const GroupOptions& options() const noexcept { return options_; }

  /// Starts `call`.
  /// Collective: every rank starts an equal call, in the same order. Returns without waiting for
  /// the others, unless kMaxCallsInFlight earlier calls are not complete. Do not access the spans
  /// until the operation is done; `keep` is kept alive that long.
  /// The first call on GPU memory connects the devices and waits for the other ranks.
  /// Throws UsageError for an invalid call (call.h), PeerError.
  [[nodiscard]] std::shared_ptr<Operation> start(const Call& call,
                                                 std::shared_ptr<const void> keep);

  /// Start a send or a receive (order: data_plane.h). Called by the two ranks of the message.
  /// Return at once; a send is done when the receiver has the data. Throw UsageError for an invalid
  /// rank and for a span that is not `count` elements long, PeerError. The operation throws
  /// PeerError if the two sides differ.
  [[nodiscard]] std::shared_ptr<Operation> send(const Message& message,
                                                std::span<const std::byte> bytes,
                                                std::shared_ptr<const void> keep);
  [[nodiscard]] std::shared_ptr<Operation> receive(const Message& message,
                                                   std::span<std::byte> bytes,
                                                   std::shared_ptr<const void> keep);

  /// Advances all operations as far as possible without waiting. Throws PeerError.
  void advance();
  /// Advances; returns whether the operation is done, on a GPU whether its work has ended. Throws
  /// PeerError.
  [[nodiscard]] bool done(Operation& operation);
  /// Returns when the operation is done. Throws PeerError when a rank fails, or when the operation
  /// is not done by the deadline. Without a deadline the group's timeout applies, from this call
  /// on. On a GPU: returns when the work is enqueued.
  void wait(Operation& operation, std::optional<Deadline> deadline = {});
  /// As wait(); then, on a GPU, makes `stream` wait for the end of the work, without waiting
  /// itself.
  void make_wait(Operation& operation, void* stream, std::optional<Deadline> deadline = {});
  /// As wait(), but on a GPU returns when the work has ended.
  void synchronize(Operation& operation, std::optional<Deadline> deadline = {});

  /// Allocates registered memory, zeroed, of `bytes` per rank. Collective. Returns when every rank
  /// has its memory. Throws UsageError for more than can be mapped, PeerError.
  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes,
                                                           const Device& device = {});

  /// Creates the group of the ranks that pass the same `color`, ordered by key, then by rank.
  /// Collective over this group. Returns when every rank of the new group is present. Throws
  /// PeerError, and SystemError when the members cannot connect.
  [[nodiscard]] std::shared_ptr<Group> split(int color, int key);

  /// The next call of this rank, as `rank` has entered it; nullopt if that rank is not ahead. For a
  /// rank that makes the calls of others without knowing them. Not collective. Throws PeerError.
  [[nodiscard]] std::optional<CallRecord> next_call_of(int rank);
  /// The number of calls that `rank` has entered, as far as this rank knows.
  [[nodiscard]] std::uint64_t num_entered(int rank);

  /// DevicePlane::allow_capture(), begin_replay() and note_replay(). Nothing without a device
  /// plane.
  void allow_capture(bool allowed) noexcept {
    if (device_) device_->allow_capture(allowed);
  }
  void begin_replay(void* stream) { enqueue_replay(&DevicePlane::begin_replay, stream); }
  void note_replay(void* stream) { enqueue_replay(&DevicePlane::note_replay, stream); }

  /// The page of this rank; every call is noted in it.
  [[nodiscard]] RankPage& page() noexcept { return page_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  class ParentAddressExchange;

  void try_advance() noexcept override;
  [[nodiscard]] std::optional<std::string> awaits_this_rank(int global_rank) override;

  void enqueue_replay(void (DevicePlane::*part)(void* stream), void* stream);

  // Called with mutex_ held. Functions that wait release it while they sleep.
  std::shared_ptr<CallOperation> start_call(const Call& call, std::shared_ptr<const void> keep);
  // Waits until the call has a free record.
  [[nodiscard]] std::uint64_t number_of_next_call();
  std::shared_ptr<Operation> start_message(std::shared_ptr<MessageOperation> operation,
                                           std::shared_ptr<const void> keep);
  void wait_for(Operation& operation, std::optional<Deadline> deadline);
  // Moves all operations as far as they can. `now` is the time, if it has just been read: a read
  // is noticed in a small call.
  void advance_all(std::optional<Ticks> now = {});
  // `is_whole`: no rank has given up the group; otherwise only the oldest call may continue.
  void move_all(bool is_whole, std::optional<Ticks> now);
  void begin(CallOperation& operation, std::optional<Ticks> now);
  // Returns whether the memory_words of all ranks are known to be equal too.
  bool expect_equal_calls(const CallOperation& operation);
  [[nodiscard]] Awaited entered(const CallOperation& operation) const noexcept;
  [[nodiscard]] Awaited blocker_of(const Operation& operation) const noexcept;
  // Gathers the bytes of every rank in a call of kind split. Returns the number of the call.
  std::uint64_t gather(std::span<const std::byte> own, std::span<std::byte> all,
                       std::string_view name);

  // The state of a wait: spin, yield, sleep; after each sleep the other ranks are checked.
  struct Wait {
    std::optional<Deadline> deadline = {};
    std::optional<std::chrono::steady_clock::time_point> last_look = {};  // at the other ranks
    std::chrono::steady_clock::duration waited = {};
    bool reported = false;
    bool cycle_reported = false;
  };
  void wait_a_little(const Awaited& awaited, int rank, Wait& wait);
  void check_others(const Awaited& awaited, Wait& wait);
  void check_sometimes(const Awaited& awaited);
  // The cause published by a failed rank that has not completed call `number`.
  static constexpr auto kEveryCall = std::numeric_limits<std::uint64_t>::max();
  [[nodiscard]] std::optional<Cause> reported_failure(std::uint64_t number = kEveryCall) const;
  [[nodiscard]] std::optional<Cause> find_failure(const Awaited& awaited) const;
  // A rank that has left before it completed call `number` never does its part of it.
  [[nodiscard]] bool has_left_before(int rank, std::uint64_t number) const noexcept;
  [[nodiscard]] Cause departure_of(int rank) const;
  void expect_nobody_left(const CallOperation& operation);
  // Whether `rank` has completed the oldest call that this rank has not.
  [[nodiscard]] bool has_completed_front(int rank) const noexcept;
  [[nodiscard]] std::string call_in_words(int rank, std::uint64_t number) const;
  [[nodiscard]] std::string last_call_in_words(int rank) const;
  [[nodiscard]] std::string rank_in_words(int rank) const;
  [[nodiscard]] std::string what_waits() const;

  void expect_usable();
  void expect_usable_memory(const Device& device) const;
  [[nodiscard]] bool has_ended(Operation& operation);
  void expect_result();
  [[nodiscard]] std::string awaited_in_words(const Awaited& awaited, int rank) const;
  // Identifies this group in the page.
  [[nodiscard]] std::uint64_t page_key() const noexcept {
    return reinterpret_cast<std::uintptr_t>(this);
  }
  [[noreturn]] void fail(const Cause& cause);
  void write_flight_recorder(const std::string& cause) const noexcept;

  const Membership membership_;
  const GroupOptions options_;
  const Connect connect_;
  const std::string reason_;
  const Log log_;
  std::mutex allocating_;  // locked before mutex_: allocations have the same order on all ranks
  std::mutex mutex_;       // guards all that follows
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<DataPlane> data_;
  std::unique_ptr<DevicePlane> device_;  // may be null
  const TreePlan tree_;
  const bool uses_cpu_memory_;
  bool oversubscribed_ = false;
  std::uint64_t calls_ = 0;                       // number of calls entered
  std::uint64_t room_until_ = kMaxCallsInFlight;  // calls up to this number have a free record
  int splits_ = 0;
  std::deque<std::shared_ptr<CallOperation>> queue_;       // calls not completed, oldest first
  std::list<std::shared_ptr<MessageOperation>> messages_;  // not done, oldest first
  FlightRecorder recorder_;
  RankPage page_ = membership_.page;
  std::optional<Cause> failure_;
  std::chrono::steady_clock::time_point last_check_{};
  std::uint64_t last_device_call_ = 0;  // that is complete: its work is enqueued
};

/// Creates the group of all ranks of `world`, with the planes of `connect`.
/// Collective: every rank of the world calls this, in the same order as for its other groups.
/// Returns when every rank is present. Throws any exception of `connect`, and PeerError when a rank
/// has ended or is late.
[[nodiscard]] std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                                const Connect& connect);

}  // namespace lockstep
