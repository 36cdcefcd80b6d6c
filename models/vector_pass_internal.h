// For loops over memory that become vector code, in the widest vectors that the processor has: how
// one is compiled for each kind, and the exponential they share, which does not branch. Only for
// files that are compiled with -O3 and -fno-trapping-math. All of it lies in an unnamed namespace,
// so that no file's code is ever taken for another's.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::models {
namespace {

// Where the exponential ends: of more it counts as infinite, of less than -kFar as 0.
constexpr float kFar = 80.0F;

// e to the power of z for |z| <= kFar, to about two units in the last place: 2^n e^r, where n is
// whole and |r| <= ln(2) / 2. NaN stays.
[[gnu::always_inline]] inline float exponential(float z) noexcept {
  constexpr float rounder = 0x1.8p23F;  // added to a number, leaves whole ones; the low bits are n
  const float shifted = z * 1.44269504F + rounder;
  const float n = shifted - rounder;
  const float r = (z - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  float power = 1.0F / 720.0F;  // Taylor's series
  power = power * r + 1.0F / 120.0F;
  power = power * r + 1.0F / 24.0F;
  power = power * r + 1.0F / 6.0F;
  power = power * r + 1.0F / 2.0F;
  power = power * r + 1.0F;
  power = power * r + 1.0F;
  const auto scale = (std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3F800000U;
  return power * std::bit_cast<float>(scale);
}

#ifdef __x86_64__
template <typename Pass, typename... Args>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,fma,prefer-vector-width=512")]] void with_avx512(
    Args... args) noexcept {
  Pass::run(args...);
}

template <typename Pass, typename... Args>
[[gnu::target("avx2,fma")]] void with_avx2(Args... args) noexcept {
  Pass::run(args...);
}

// Pass::run(args...), which is always inlined, in this processor's widest vectors.
template <typename Pass, typename... Args>
void dispatch(Args... args) noexcept {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return with_avx512<Pass>(args...);
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return with_avx2<Pass>(args...);
  }
  Pass::run(args...);
}
#else
template <typename Pass, typename... Args>
void dispatch(Args... args) noexcept {
  Pass::run(args...);
}
#endif

}  // namespace
}  // namespace lockstep::models
