// gelu(x) = x (1 + tanh u) / 2 = x s, where u = sqrt(2/pi) (x + 0.044715 x^3) and s = 1 / (1 +
// exp(-2u)). The second form has one exponential and no cancellation: results near zero keep full
// precision. There are no branches, so that compilers vectorize the loops.
#include "lockstep/kernels/gelu_pass.h"

#include "lockstep/kernels/exponential_internal.h"

namespace lockstep {
namespace {

constexpr float kTwiceRootOfTwoOverPi = 1.5957691216057308F;
constexpr float kCubic = 0.044715F;

struct Sigmoid {
  float value;       // s
  float complement;  // 1 - s
};

[[gnu::always_inline]] inline Sigmoid sigmoid_of(float x) noexcept {
  const float z = -kTwiceRootOfTwoOverPi * x * (1.0F + kCubic * x * x);
  const float above = z < -kFar ? -kFar : z;  // NaN stays
  const float power = exponential(above > kFar ? kFar : above);
  const float sigmoid = 1.0F / (1.0F + power);
  // exp(kFar) is so large that s counts as 0; exp(-kFar) is so small that 1 - s counts as 0.
  return {z > kFar ? 0.0F : sigmoid, z < -kFar ? 0.0F : power * sigmoid};
}

[[gnu::always_inline]] inline float gelu(float x) noexcept { return x * sigmoid_of(x).value; }

[[gnu::always_inline]] inline float gelu_gradient(float dy, float x) noexcept {
  const Sigmoid sigmoid = sigmoid_of(x);
  const float slope = kTwiceRootOfTwoOverPi * (1.0F + 3.0F * kCubic * x * x);
  return dy * (sigmoid.value + x * sigmoid.value * sigmoid.complement * slope);
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
