// A point in time by which a wait must end. Every call that can block takes one, so nothing waits
// forever; passing the same Deadline down a chain of calls bounds the whole chain.
#pragma once

#include <chrono>

namespace lockstep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;  // a changed wall clock must not end or stretch a wait

  explicit Deadline(Clock::time_point at) noexcept : at_(at) {}

  /// The deadline `span` from now. A span too long for the clock ends at the clock's last moment.
  [[nodiscard]] static Deadline after(Clock::duration span) noexcept;

  [[nodiscard]] bool expired() const noexcept { return Clock::now() >= at_; }
  [[nodiscard]] Clock::time_point at() const noexcept { return at_; }

  /// Time left; zero once expired, never negative.
  [[nodiscard]] Clock::duration remaining() const noexcept;

  /// Time left as poll(2) takes it: milliseconds, rounded up so that a wait never ends early and
  /// spins.
  [[nodiscard]] int poll_milliseconds() const noexcept;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the operator's hidden 0 for a
  // pointer.
  friend auto operator<=>(const Deadline&, const Deadline&) = default;

 private:
  Clock::time_point at_;
};

}  // namespace lockstep
