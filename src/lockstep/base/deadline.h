// A point in time by which a wait must end. Every call that can block takes a Deadline, so no call
// waits forever. Passing the same Deadline down a chain of calls bounds the whole chain.
#pragma once

#include <chrono>

namespace lockstep {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;  // setting the wall clock does not change a wait

  explicit Deadline(Clock::time_point at) noexcept : at_(at) {}

  /// The deadline `span` from now. A span that overflows the clock gives the clock's maximum.
  [[nodiscard]] static Deadline after(Clock::duration span) noexcept;

  [[nodiscard]] bool expired() const noexcept { return Clock::now() >= at_; }
  [[nodiscard]] Clock::time_point at() const noexcept { return at_; }

  /// The time left; zero once expired, never negative.
  [[nodiscard]] Clock::duration remaining() const noexcept;

  /// The time left as an argument for poll(2): milliseconds, rounded up, so that poll does not
  /// return before the deadline and make the caller spin.
  [[nodiscard]] int poll_milliseconds() const noexcept;

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 mistakes the operator's hidden 0.
  friend auto operator<=>(const Deadline&, const Deadline&) = default;

 private:
  Clock::time_point at_;
};

}  // namespace lockstep
