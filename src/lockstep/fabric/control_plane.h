// The control plane of a group: the ranks publish which call each has entered, with its descriptor
// and flags; failure and departure; and a rank waits here until another rank has changed something.
// It moves no data. One implementation per transport; group.h uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/call_flags.h"
#include "lockstep/base/deadline.h"
#include "lockstep/fabric/call.h"
#include "lockstep/fabric/counters.h"
#include "lockstep/fabric/recipe.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

/// The maximum number of calls of a group that a rank has entered but not completed.
constexpr std::size_t kMaxCallsInFlight = 64;

/// What a rank publishes when it enters a call. In most calls other ranks read only the first cache
/// line; the remainder is for messages, and for calls that differ.
struct alignas(64) CallRecord {
  std::uint64_t number = 0;
  CallFlags flags = {};
  std::int64_t weight = 0;   // if the call has one
  MemoryWords memory = {};   // written and read only by the data plane
  LeafInterval leaves = {};  // if descriptor.has_leaves
  CallDescriptor descriptor = {};
};
static_assert(offsetof(CallRecord, leaves) == 64);

enum class Standing : std::uint32_t { joining, present, left, failed };

/// Why a group has failed, as stated by the first rank that detects it.
struct Cause {
  int culprit = 0;  // a rank of the group
  std::string text;
};

class ControlPlane {
 public:
  /// `polls`: whether this process must call poll() to receive what other ranks publish.
  explicit ControlPlane(bool polls) noexcept : polls_(polls) {}
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  virtual ~ControlPlane() = default;

  /// The progress counters of all ranks. Valid for the lifetime of this object.
  [[nodiscard]] virtual const Counters& counters() const noexcept = 0;

  /// This rank's record of call `number`. The caller fills it before enter(). It is filled in
  /// place, because a copy would add measurable time to a small call.
  [[nodiscard]] virtual CallRecord& own_record(std::uint64_t number) noexcept = 0;
  /// Publishes that this rank has entered call `number` with `signature` (signature_of). A rank
  /// that reads the raised counter also sees everything that this rank has written before.
  virtual void enter(std::uint64_t number, std::uint64_t signature) noexcept = 0;
  /// Publishes that this rank has completed all calls up to `number`.
  virtual void complete(std::uint64_t number) noexcept = 0;
  virtual void set_standing(Standing standing) noexcept = 0;
  /// Publishes that this rank has failed, with the cause, which may be cut to 1 KiB.
  virtual void fail(const Cause& cause) noexcept = 0;

  /// The first rank that has entered call `number` with another signature, or has failed since, or
  /// is so many calls ahead that its signature is no longer stored. In the last case the caller
  /// compares the records.
  [[nodiscard]] virtual std::optional<int> find_other_signature(std::uint64_t number,
                                                                std::uint64_t signature) const = 0;
  /// The record of `rank` for call `number`. Valid until this rank has completed that call, and for
  /// the last call of `rank`.
  [[nodiscard]] virtual const CallRecord& record(int rank, std::uint64_t number) const = 0;
  [[nodiscard]] virtual Standing standing(int rank) const noexcept = 0;
  /// The cause that a failed rank has published.
  [[nodiscard]] virtual Cause cause(int rank) const = 0;

  /// Whether the process of `rank` has ended.
  [[nodiscard]] virtual bool is_gone(int rank) const = 0;
  /// Whether what a rank publishes reaches this rank only while all other ranks relay it.
  [[nodiscard]] virtual bool relays() const noexcept { return false; }
  /// How a rank that is gone is described: "has ended", or "is lost" if only its connection is.
  [[nodiscard]] virtual std::string_view gone_in_words(int /*rank*/) const { return "has ended"; }
  /// "pid 4711", with the reason if the process does not run: "pid 4711, stopped by a signal".
  [[nodiscard]] virtual std::string describe(int rank) const = 0;
  /// Whether there are fewer cores than ranks: a wait then must not spin. Known once all ranks are
  /// present.
  [[nodiscard]] virtual bool shares_cores() const = 0;

  [[nodiscard]] bool polls() const noexcept { return polls_; }
  /// Receives what has arrived from other ranks, without waiting.
  void poll() {
    if (polls_) receive_pending();
  }
  /// Sleeps until `rank` may have fulfilled `awaited`, or until `until`. Spurious wakeups occur.
  virtual void sleep(const Awaited& awaited, int rank, Deadline until) = 0;
  /// Wakes the ranks that sleep until this rank has changed something, after a change of a word
  /// outside the control plane. Does nothing where sleep() polls.
  virtual void wake_others() noexcept {}

  /// Publishes the call in which this rank sleeps; 0: it does not sleep.
  virtual void set_waits_in(std::uint64_t number) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t waits_in(int rank) const noexcept = 0;

 private:
  virtual void receive_pending() {}

  const bool polls_;  // read many times per call: a virtual call would add measurable time
};

}  // namespace lockstep
