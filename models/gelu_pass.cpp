// gelu(x) = x (1 + tanh u) / 2 = x s, where u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 +
// exp(-2u)). The second form has one exponential and nothing that cancels: results near zero keep
// all their bits. Nothing branches, so that the loops become vector code.
#include "models/gelu_pass_internal.h"

#include "lockstep/base/half.h"
#include "models/vector_pass_internal.h"

namespace lockstep::models {
namespace {

constexpr float kTwiceRootOfTwoOverPi = 1.5957691216057308F;
constexpr float kCubic = 0.044715F;

struct Share {
  float kept;  // s
  float lost;  // 1 - s
};

[[gnu::always_inline]] inline Share share_of(float x) noexcept {
  const float z = -kTwiceRootOfTwoOverPi * x * (1.0F + kCubic * x * x);
  const float above = z < -kFar ? -kFar : z;  // NaN stays
  const float power = exponential(above > kFar ? kFar : above);
  const float share = 1.0F / (1.0F + power);
  // exp(kFar) is so large that s counts as 0, exp(-kFar) so small that 1 - s does.
  return {z > kFar ? 0.0F : share, z < -kFar ? 0.0F : power * share};
}

[[gnu::always_inline]] inline float gelu(float x) noexcept { return x * share_of(x).kept; }

[[gnu::always_inline]] inline float gelu_gradient(float dy, float x) noexcept {
  const Share share = share_of(x);
  const float slope = kTwiceRootOfTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
  return dy * (share.kept + x * share.kept * share.lost * slope);
}

[[gnu::always_inline]] inline float wide(float value) noexcept { return value; }
[[gnu::always_inline]] inline float wide(BFloat16Bits value) noexcept {
  return widen_bfloat16(static_cast<std::uint16_t>(value));
}

[[gnu::always_inline]] inline void store(float& to, float value) noexcept { to = value; }
[[gnu::always_inline]] inline void store(BFloat16Bits& to, float value) noexcept {
  to = static_cast<BFloat16Bits>(narrow_to_bfloat16(value));
}

struct Forward {
  template <typename T>
  [[gnu::always_inline]] inline static void run(const T* x, T* __restrict y,
                                                std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) store(y[i], gelu(wide(x[i])));
  }
};

struct Backward {
  template <typename T>
  [[gnu::always_inline]] inline static void run(const T* dy, const T* x, T* __restrict dx,
                                                std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) store(dx[i], gelu_gradient(wide(dy[i]), wide(x[i])));
  }
};

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
