// The processor's time counter, for times that are read very often. Reading it takes a few
// nanoseconds; steady_clock takes 20 to 40. Ticks of different processors of one host agree.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace lockstep {

using Ticks = std::uint64_t;

namespace ticks_internal {

/// False on x86-64 processors whose counter changes its rate; ticks are then nanoseconds.
extern const bool kHasCounter;
[[nodiscard]] Ticks steady_nanoseconds() noexcept;

}  // namespace ticks_internal

[[nodiscard]] inline Ticks ticks() noexcept {
#if defined(__aarch64__)
  Ticks value = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#elif defined(__x86_64__)
  return ticks_internal::kHasCounter ? __rdtsc() : ticks_internal::steady_nanoseconds();
#else
  return ticks_internal::steady_nanoseconds();
#endif
}

/// One moment in ticks and in the time of steady_clock. Converts ticks near this moment; the error
/// grows with the distance, by less than a microsecond per second.
class TickAnchor {
 public:
  /// Reads both clocks.
  [[nodiscard]] static TickAnchor now() noexcept;

  [[nodiscard]] std::chrono::steady_clock::time_point steady(Ticks at) const noexcept {
    const auto since = static_cast<double>(static_cast<std::int64_t>(at - ticks_));
    return steady_ +
           std::chrono::nanoseconds(static_cast<std::int64_t>(since * nanoseconds_per_tick_));
  }
  [[nodiscard]] double nanoseconds_per_tick() const noexcept { return nanoseconds_per_tick_; }

 private:
  Ticks ticks_ = 0;
  std::chrono::steady_clock::time_point steady_{};
  double nanoseconds_per_tick_ = 1;
};

}  // namespace lockstep
