#include "lockstep/kernels/adam_pass.h"

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/elements.h"

namespace lockstep {
namespace {

// Hardware prefetchers do not cross pages, and do not run far enough ahead for loops with a square
// root and a division. A prefetch beyond the end of memory has no effect.
template <typename T>
[[gnu::always_inline]] inline void fetch_ahead(const T* place) noexcept {
  constexpr std::size_t kAhead = 512;  // bytes
  __builtin_prefetch(reinterpret_cast<const std::byte*>(place) + kAhead, /*for writing=*/1);
}

// exp_avg.lerp_(gradient, 1 - beta1) as in LibTorch: it starts from the nearer end.
template <bool FromGradient, typename Wide>
Wide mixed(Wide average, Wide gradient, Wide weight) noexcept {
  if constexpr (FromGradient) return gradient - (gradient - average) * (Wide(1) - weight);
  return average + (gradient - average) * weight;
}

// AdamStep, rounded to the type of the pass.
template <typename Wide>
struct Factors {
  Wide weight, beta2, new_square, eps, kept, decay, step_size, root_factor;
};

template <bool FromGradient, bool Decays, typename Stored, typename Wide>
[[gnu::always_inline]] inline void step_element(Stored* __restrict values,
                                                const Stored* __restrict gradients,
                                                Wide* __restrict averages, Wide* __restrict squares,
                                                Wide* __restrict masters, std::size_t i,
                                                const Factors<Wide>& f) noexcept {
  Wide value = read_value(values[i], masters, i);
  Wide gradient = widened(gradients[i]);
  if constexpr (Decays) gradient = gradient + value * f.decay;
  value = value * f.kept;
  const Wide average = mixed<FromGradient>(averages[i], gradient, f.weight);
  const Wide square = squares[i] * f.beta2 + f.new_square * gradient * gradient;
  averages[i] = average;
  squares[i] = square;
  value = value - f.step_size * average / (std::sqrt(square) * f.root_factor + f.eps);
  write_value(values[i], masters, i, value);
}

// GCC honors __restrict only on parameters of a function that is not inlined.
template <bool FromGradient, bool Decays, typename Stored, typename Wide>
[[gnu::noinline]] void pass(Stored* __restrict values, const Stored* __restrict gradients,
                            Wide* __restrict averages, Wide* __restrict squares,
                            Wide* __restrict masters, std::size_t count,
                            Factors<Wide> factors) noexcept {
  constexpr std::size_t kLine = 64 / sizeof(Wide);
  std::size_t begin = 0;
  for (; begin + kLine <= count; begin += kLine) {
    fetch_ahead(values + begin);
    fetch_ahead(gradients + begin);
    fetch_ahead(averages + begin);
    fetch_ahead(squares + begin);
    if constexpr (!std::is_same_v<Stored, Wide>) fetch_ahead(masters + begin);
    for (std::size_t i = 0; i < kLine; ++i) {
      step_element<FromGradient, Decays>(values, gradients, averages, squares, masters, begin + i,
                                         factors);
    }
  }
  for (; begin < count; ++begin) {
    step_element<FromGradient, Decays>(values, gradients, averages, squares, masters, begin,
                                       factors);
  }
}

template <bool FromGradient, bool Decays, typename Stored>
void pass(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  using Wide = WideOf<Stored>;
  pass<FromGradient, Decays, Stored, Wide>(stretch.values, stretch.gradients, stretch.averages,
                                           stretch.squares, stretch.masters, stretch.count,
                                           {.weight = static_cast<Wide>(1 - step.beta1),
                                            .beta2 = static_cast<Wide>(step.beta2),
                                            .new_square = static_cast<Wide>(1 - step.beta2),
                                            .eps = static_cast<Wide>(step.eps),
                                            .kept = static_cast<Wide>(step.kept),
                                            .decay = static_cast<Wide>(step.decay),
                                            .step_size = static_cast<Wide>(step.step_size),
                                            .root_factor = static_cast<Wide>(step.root_factor)});
}

}  // namespace

template <InstructionSet Set, typename Stored>
void AdamLoops<Set, Stored>::run(const AdamStretch<Stored>& stretch,
                                 const AdamStep& step) noexcept {
  const bool from_gradient = 1 - step.beta1 >= 0.5;
  const bool decays = step.decay != 0;
  if (from_gradient) {
    decays ? pass<true, true>(stretch, step) : pass<true, false>(stretch, step);
  } else {
    decays ? pass<false, true>(stretch, step) : pass<false, false>(stretch, step);
  }
}
template struct AdamLoops<kCompiledFor, float>;
template struct AdamLoops<kCompiledFor, double>;
template struct AdamLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
