// What the ranks of a group tell each other about their calls: which call each has entered, with
// its description and flags; failure and departure; and how one waits until another has something
// to say. It moves no data. One version per transport; group.h uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/call_flags.h"
#include "lockstep/base/deadline.h"
#include "lockstep/fabric/call.h"
#include "lockstep/fabric/counters.h"
#include "lockstep/fabric/recipe.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

/// How many calls of a group a rank may have entered and not completed.
constexpr std::size_t kMaxCallsInFlight = 64;

/// What a rank makes known when it enters a call. Other ranks read the first cache line in most
/// calls; the rest is for people, and for calls that differ.
struct alignas(64) CallRecord {
  std::uint64_t number = 0;
  CallFlags flags = {};
  std::int64_t weight = 0;   // where the call has one
  MemoryWords memory = {};   // written and read by the data plane alone
  LeafInterval leaves = {};  // where the descriptor has them
  CallDescriptor descriptor = {};
};
static_assert(offsetof(CallRecord, leaves) == 64);

enum class Standing : std::uint32_t { joining, present, left, failed };

/// Why a group cannot be used any more, as the first rank to notice says it.
struct Cause {
  int culprit = 0;  // a rank of the group
  std::string text;
};

class ControlPlane {
 public:
  /// `polls`: whether what other ranks say must be taken in, or appears by itself.
  explicit ControlPlane(bool polls) noexcept : polls_(polls) {}
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  virtual ~ControlPlane() = default;

  /// How far each rank is. Lives as long as this.
  [[nodiscard]] virtual const Counters& counters() const noexcept = 0;

  /// This rank's record of call `number`, to be filled before it enters: in place, since a copy
  /// would be felt in a small call.
  [[nodiscard]] virtual CallRecord& own_record(std::uint64_t number) noexcept = 0;
  /// This rank has entered call `number`. `signature` is signature_of() it. What this rank has
  /// written before is seen by a rank that sees the counter raised.
  virtual void enter(std::uint64_t number, std::uint64_t signature) noexcept = 0;
  /// This rank has completed all calls up to `number`.
  virtual void complete(std::uint64_t number) noexcept = 0;
  virtual void stand(Standing standing) noexcept = 0;
  /// This rank has failed; others read the cause. May be cut to 1 KiB.
  virtual void fail(const Cause& cause) noexcept = 0;

  /// The first rank that has entered call `number` with another signature, has failed since, or is
  /// so many calls ahead that its signature is not kept: its record decides then.
  [[nodiscard]] virtual std::optional<int> find_other_signature(std::uint64_t number,
                                                                std::uint64_t signature) const = 0;
  /// Valid while this rank has not completed that call, or for the rank's last one.
  [[nodiscard]] virtual const CallRecord& record(int rank, std::uint64_t number) const = 0;
  [[nodiscard]] virtual Standing standing(int rank) const noexcept = 0;
  /// Of a rank that has failed.
  [[nodiscard]] virtual Cause cause(int rank) const = 0;

  /// True when `rank` can never act again: its process has ended.
  [[nodiscard]] virtual bool is_gone(int rank) const = 0;
  /// "pid 4711", and what keeps it from running where something does: "pid 4711, stopped by a
  /// signal".
  [[nodiscard]] virtual std::string describe(int rank) const = 0;
  /// Whether ranks that could run at the same time share cores: then a wait must not spin. Known
  /// once all ranks are present.
  [[nodiscard]] virtual bool shares_cores() const = 0;

  /// Takes in what has arrived, without waiting.
  void poll() {
    if (polls_) take_in();
  }
  /// Sleeps until `rank` may have done what is awaited of it, or `until`. May wake for nothing.
  virtual void sleep(const Awaited& awaited, int rank, Deadline until) = 0;

  /// The call that this rank sleeps in, for others to look up; 0: it does not.
  virtual void set_waits_in(std::uint64_t number) noexcept = 0;
  [[nodiscard]] virtual std::uint64_t waits_in(int rank) const noexcept = 0;

 private:
  virtual void take_in() {}

  const bool polls_;  // asked many times per call, where a virtual call would be felt
};

}  // namespace lockstep
