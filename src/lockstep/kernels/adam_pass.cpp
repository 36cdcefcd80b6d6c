#include "lockstep/kernels/adam_pass.h"

#include <array>
#include <cstddef>
#include <type_traits>

#include "lockstep/kernels/adam_element_internal.h"
#include "lockstep/kernels/line_store_internal.h"
#include "lockstep/kernels/value_target_internal.h"

namespace lockstep {
namespace {

// Hardware prefetchers do not cross pages, and do not run far enough ahead for loops with a square
// root and a division. A prefetch beyond the end of memory has no effect.
template <typename T>
[[gnu::always_inline]] inline void fetch_ahead(const T* address) noexcept {
  constexpr std::size_t kAhead = 512;  // bytes
  __builtin_prefetch(reinterpret_cast<const std::byte*>(address) + kAhead, /*for writing=*/1);
}

// GCC honors __restrict only on parameters of a function that is not inlined.
template <bool FromGradient, bool Decays, ValueTarget To, typename Stored, typename Wide>
[[gnu::noinline]] void pass(Stored* __restrict values, const Stored* __restrict elsewhere,
                            const Stored* __restrict apart, Wide* __restrict averages,
                            Wide* __restrict squares, Wide* __restrict masters, std::size_t count,
                            AdamFactors<Wide> factors) noexcept {
  const Stored* const old_values = To == ValueTarget::in_place ? values : elsewhere;
  const Stored* const gradients = To == ValueTarget::over_gradients ? values : apart;
  const auto step = [&](Stored& new_value, std::size_t i) {
    adam_element<FromGradient, Decays>(new_value, old_values, gradients, averages, squares, masters,
                                       i, factors);
  };
  constexpr std::size_t kLine = 64 / sizeof(Wide);
  std::size_t begin = 0;
  if constexpr (To == ValueTarget::past_caches) {
    for (; begin < count && !is_aligned_line(values + begin); ++begin) step(values[begin], begin);
  }
  for (; begin + kLine <= count; begin += kLine) {
    if constexpr (To != ValueTarget::past_caches) fetch_ahead(values + begin);
    if constexpr (To != ValueTarget::in_place) fetch_ahead(old_values + begin);
    if constexpr (To != ValueTarget::over_gradients) fetch_ahead(gradients + begin);
    fetch_ahead(averages + begin);
    fetch_ahead(squares + begin);
    if constexpr (!std::is_same_v<Stored, Wide>) fetch_ahead(masters + begin);
    if constexpr (To == ValueTarget::past_caches) {
      std::array<Stored, kLine> line;
      for (std::size_t i = 0; i < kLine; ++i) step(line[i], begin + i);
      stream_line(values + begin, line);
    } else {
      for (std::size_t i = 0; i < kLine; ++i) step(values[begin + i], begin + i);
    }
  }
  for (; begin < count; ++begin) step(values[begin], begin);
  if constexpr (To == ValueTarget::past_caches) StreamingStore::finish();
}

template <bool FromGradient, bool Decays, ValueTarget To, typename Stored>
void pass(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  using Wide = WideOf<Stored>;
  pass<FromGradient, Decays, To, Stored, Wide>(
      stretch.values, stretch.old_values, stretch.gradients, stretch.averages, stretch.squares,
      stretch.masters, stretch.count, AdamFactors<Wide>(step));
}

template <bool FromGradient, ValueTarget To, typename Stored>
void choose_decay(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  step.decay != 0 ? pass<FromGradient, true, To>(stretch, step)
                  : pass<FromGradient, false, To>(stretch, step);
}

template <bool FromGradient, typename Stored>
void choose_target(const AdamStretch<Stored>& stretch, const AdamStep& step) noexcept {
  switch (target_of(stretch)) {
    case ValueTarget::in_place:
      return choose_decay<FromGradient, ValueTarget::in_place>(stretch, step);
    case ValueTarget::elsewhere:
      return choose_decay<FromGradient, ValueTarget::elsewhere>(stretch, step);
    case ValueTarget::past_caches:
      return choose_decay<FromGradient, ValueTarget::past_caches>(stretch, step);
    case ValueTarget::over_gradients:
      return choose_decay<FromGradient, ValueTarget::over_gradients>(stretch, step);
  }
}

}  // namespace

template <InstructionSet Set, typename Stored>
void AdamLoops<Set, Stored>::run(const AdamStretch<Stored>& stretch,
                                 const AdamStep& step) noexcept {
  moves_from_gradient(step) ? choose_target<true>(stretch, step)
                            : choose_target<false>(stretch, step);
}
template struct AdamLoops<kCompiledFor, float>;
template struct AdamLoops<kCompiledFor, double>;
template struct AdamLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
