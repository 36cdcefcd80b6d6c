#include "lockstep/kernels/adam_pass.h"

#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/adam_element_internal.h"

namespace lockstep {
namespace {

// Hardware prefetchers do not cross pages, and do not run far enough ahead for loops with a square
// root and a division. A prefetch beyond the end of memory has no effect.
template <typename T>
[[gnu::always_inline]] inline void fetch_ahead(const T* place) noexcept {
  constexpr std::size_t kAhead = 512;  // bytes
  __builtin_prefetch(reinterpret_cast<const std::byte*>(place) + kAhead, /*for writing=*/1);
}

// GCC honors __restrict only on parameters of a function that is not inlined.
template <bool FromGradient, bool Decays, bool InPlace, typename Stored, typename Wide>
[[gnu::noinline]] void pass(Stored* __restrict values, const Stored* __restrict elsewhere,
                            const Stored* __restrict gradients, Wide* __restrict averages,
                            Wide* __restrict squares, Wide* __restrict masters, std::size_t count,
                            AdamFactors<Wide> factors) noexcept {
  const Stored* const old_values = InPlace ? values : elsewhere;
  constexpr std::size_t kLine = 64 / sizeof(Wide);
  std::size_t begin = 0;
  for (; begin + kLine <= count; begin += kLine) {
    fetch_ahead(values + begin);
    if constexpr (!InPlace) fetch_ahead(old_values + begin);
    fetch_ahead(gradients + begin);
    fetch_ahead(averages + begin);
    fetch_ahead(squares + begin);
    if constexpr (!std::is_same_v<Stored, Wide>) fetch_ahead(masters + begin);
    for (std::size_t i = 0; i < kLine; ++i) {
      adam_element<FromGradient, Decays>(values, old_values, gradients, averages, squares, masters,
                                         begin + i, factors);
    }
  }
  for (; begin < count; ++begin) {
    adam_element<FromGradient, Decays>(values, old_values, gradients, averages, squares, masters,
                                       begin, factors);
  }
}

template <bool FromGradient, bool Decays, bool InPlace, typename Stored>
void pass(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  using Wide = WideOf<Stored>;
  pass<FromGradient, Decays, InPlace, Stored, Wide>(
      stretch.values, stretch.old_values, stretch.gradients, stretch.averages, stretch.squares,
      stretch.masters, stretch.count, AdamFactors<Wide>(step));
}

template <bool FromGradient, bool InPlace, typename Stored>
void choose_decay(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  step.decay != 0 ? pass<FromGradient, true, InPlace>(stretch, step)
                  : pass<FromGradient, false, InPlace>(stretch, step);
}

template <bool FromGradient, typename Stored>
void choose_place(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  stretch.old_values == nullptr ? choose_decay<FromGradient, true>(stretch, step)
                                : choose_decay<FromGradient, false>(stretch, step);
}

}  // namespace

template <InstructionSet Set, typename Stored>
void AdamLoops<Set, Stored>::run(const AdamStretch<Stored>& stretch,
                                 const AdamStep& step) noexcept {
  moves_from_gradient(step) ? choose_place<true>(stretch, step)
                            : choose_place<false>(stretch, step);
}
template struct AdamLoops<kCompiledFor, float>;
template struct AdamLoops<kCompiledFor, double>;
template struct AdamLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
