#include "lockstep/base/ticks.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep {
namespace ticks_internal {

namespace {

bool find_counter() noexcept {
#if defined(__aarch64__)
  return true;
#elif defined(__x86_64__)
  // Bit 8 of EDX in leaf 0x80000007: the counter runs at a constant rate in all power states.
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#else
  return false;
#endif
}

}  // namespace

const bool kHasCounter = find_counter();

Ticks steady_nanoseconds() noexcept {
  return static_cast<Ticks>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace ticks_internal

namespace {

struct Pair {
  Ticks ticks = 0;
  std::chrono::steady_clock::time_point steady{};
};

// The read of steady_clock lies between two reads of the counter; the closest of a few is used,
// because the thread may be interrupted in between.
Pair read_both() noexcept {
  Pair best;
  Ticks width = ~Ticks{0};
  for (int i = 0; i < 4; ++i) {
    const auto before = ticks();
    const auto steady = std::chrono::steady_clock::now();
    const auto after = ticks();
    if (after - before >= width) continue;
    width = after - before;
    best = {before + width / 2, steady};
  }
  return best;
}

const Pair kStart = read_both();

#if !defined(__aarch64__)
// The rate is measured over this time at least.
constexpr std::chrono::milliseconds kShortest{2};
#endif

double rate([[maybe_unused]] const Pair& now) noexcept {
#if defined(__aarch64__)
  Ticks per_second = 0;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(per_second));
  return 1e9 / static_cast<double>(per_second);
#else
  auto end = now;
  while (end.steady - kStart.steady < kShortest) end = read_both();
  return static_cast<double>((end.steady - kStart.steady).count()) /
         static_cast<double>(end.ticks - kStart.ticks);
#endif
}

}  // namespace

TickAnchor TickAnchor::now() noexcept {
  const auto pair = read_both();
  TickAnchor anchor;
  anchor.ticks_ = pair.ticks;
  anchor.steady_ = pair.steady;
  anchor.nanoseconds_per_tick_ = rate(pair);
  return anchor;
}

}  // namespace lockstep
