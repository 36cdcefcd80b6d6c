// gelu(x) = x (1 + tanh u) / 2 = x s, where u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 +
// exp(-2u)). The second form has one exponential and nothing that cancels: results near zero keep
// all their bits. Nothing branches, so that the loops become vector code.
#include "models/gelu_pass_internal.h"

#include <bit>

namespace lockstep::models {
namespace {

#define LOCKSTEP_INLINE [[gnu::always_inline]] inline

constexpr float kTwiceRootOfTwoOverPi = 1.5957691216057308F;
constexpr float kCubic = 0.044715F;
// exp of more is so large that s counts as 0, exp of less so small that s counts as 1.
constexpr float kFar = 80.0F;

// e to the power of z for |z| <= kFar, to about two units in the last place: 2^n e^r, where n is
// whole and |r| <= ln(2) / 2.
LOCKSTEP_INLINE float exponential(float z) noexcept {
  constexpr float kRounds = 0x1.8p23F;  // added to a number, leaves whole ones; the low bits are n
  const float shifted = z * 1.44269504F + kRounds;
  const float n = shifted - kRounds;
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

struct Share {
  float kept;  // s
  float lost;  // 1 - s
};

LOCKSTEP_INLINE Share share_of(float x) noexcept {
  const float z = -kTwiceRootOfTwoOverPi * x * (1.0F + kCubic * x * x);
  const float above = z < -kFar ? -kFar : z;  // NaN stays
  const float power = exponential(above > kFar ? kFar : above);
  const float share = 1.0F / (1.0F + power);
  return {z > kFar ? 0.0F : share, z < -kFar ? 0.0F : power * share};
}

LOCKSTEP_INLINE float gelu(float x) noexcept { return x * share_of(x).kept; }

LOCKSTEP_INLINE float gelu_gradient(float dy, float x) noexcept {
  const Share share = share_of(x);
  const float slope = kTwiceRootOfTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
  return dy * (share.kept + x * share.kept * share.lost * slope);
}

LOCKSTEP_INLINE float wide(float value) noexcept { return value; }
LOCKSTEP_INLINE float wide(BFloat16Bits value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

LOCKSTEP_INLINE void store(float& to, float value) noexcept { to = value; }
// To the nearest, and of two to the even one; NaN stays NaN.
LOCKSTEP_INLINE void store(BFloat16Bits& to, float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  to = static_cast<BFloat16Bits>(is_nan ? quiet : rounded);
}

struct Forward {
  template <typename T>
  LOCKSTEP_INLINE static void run(const T* x, T* __restrict y, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) store(y[i], gelu(wide(x[i])));
  }
};

struct Backward {
  template <typename T>
  LOCKSTEP_INLINE static void run(const T* dy, const T* x, T* __restrict dx,
                                  std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) store(dx[i], gelu_gradient(wide(dy[i]), wide(x[i])));
  }
};

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

void gelu_pass(const float* x, float* y, std::size_t count) noexcept {
  dispatch<Forward>(x, y, count);
}

void gelu_pass(const BFloat16Bits* x, BFloat16Bits* y, std::size_t count) noexcept {
  dispatch<Forward>(x, y, count);
}

void gelu_gradient_pass(const float* dy, const float* x, float* dx, std::size_t count) noexcept {
  dispatch<Backward>(dy, x, dx, count);
}

void gelu_gradient_pass(const BFloat16Bits* dy, const BFloat16Bits* x, BFloat16Bits* dx,
                        std::size_t count) noexcept {
  dispatch<Backward>(dy, x, dx, count);
}

}  // namespace lockstep::models
