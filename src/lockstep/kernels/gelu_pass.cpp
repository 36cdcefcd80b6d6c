// gelu(x) = x (1 + tanh u) / 2 = x s, where u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 +
// exp(-2u)). The second form has one exponential and nothing that cancels: results near zero keep
// all their bits. Nothing branches, so that the loops become vector code.
#include "lockstep/kernels/gelu_pass.h"

#include "lockstep/kernels/exponential_internal.h"

namespace lockstep {
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

}  // namespace

template <InstructionSet Set, typename Stored>
void GeluLoops<Set, Stored>::forward(const Stored* x, Stored* y, std::size_t count) noexcept {
  Stored* __restrict out = y;
  for (std::size_t i = 0; i < count; ++i) out[i] = narrowed<Stored>(gelu(widened(x[i])));
}

template <InstructionSet Set, typename Stored>
void GeluLoops<Set, Stored>::backward(const Stored* dy, const Stored* x, Stored* dx,
                                      std::size_t count) noexcept {
  Stored* __restrict out = dx;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = narrowed<Stored>(gelu_gradient(widened(dy[i]), widened(x[i])));
  }
}

template struct GeluLoops<kCompiledFor, float>;
template struct GeluLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
