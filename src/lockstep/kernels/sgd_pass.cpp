#include "lockstep/kernels/sgd_pass.h"

#include <array>
#include <cstddef>

#include "lockstep/kernels/line_store_internal.h"
#include "lockstep/kernels/sgd_element_internal.h"
#include "lockstep/kernels/value_target_internal.h"

namespace lockstep {
namespace {

template <Momentum Kind, bool Decays, bool Nesterov, ValueTarget To, typename Stored>
void pass(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  using Wide = WideOf<Stored>;
  const SgdFactors<Wide> factors(step);
  Stored* __restrict values = stretch.values;
  const Stored* __restrict elsewhere = stretch.old_values;
  const Stored* __restrict apart = stretch.gradients;
  Wide* __restrict momenta = stretch.momenta;
  Wide* __restrict masters = stretch.masters;
  const Stored* const old_values = To == ValueTarget::in_place ? values : elsewhere;
  const Stored* const gradients = To == ValueTarget::over_gradients ? values : apart;
  const auto make_step = [&](Stored& new_value, std::size_t i) {
    sgd_element<Kind, Decays, Nesterov>(new_value, old_values, gradients, momenta, masters, i,
                                        factors);
  };
  std::size_t begin = 0;
  if constexpr (To == ValueTarget::past_caches) {
    constexpr std::size_t kLine = 64 / sizeof(Wide);
    for (; begin < stretch.count && !is_aligned_line(values + begin); ++begin) {
      make_step(values[begin], begin);
    }
    for (; begin + kLine <= stretch.count; begin += kLine) {
      std::array<Stored, kLine> line;
      for (std::size_t i = 0; i < kLine; ++i) make_step(line[i], begin + i);
      stream_line(values + begin, line);
    }
    StreamingStore::finish();
  }
  for (auto i = begin; i < stretch.count; ++i) make_step(values[i], i);
}

template <Momentum Kind, bool Decays, bool Nesterov, typename Stored>
void choose_target(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  switch (target_of(stretch)) {
    case ValueTarget::in_place:
      return pass<Kind, Decays, Nesterov, ValueTarget::in_place>(stretch, step);
    case ValueTarget::elsewhere:
      return pass<Kind, Decays, Nesterov, ValueTarget::elsewhere>(stretch, step);
    case ValueTarget::past_caches:
      return pass<Kind, Decays, Nesterov, ValueTarget::past_caches>(stretch, step);
    case ValueTarget::over_gradients:
      return pass<Kind, Decays, Nesterov, ValueTarget::over_gradients>(stretch, step);
  }
}

template <Momentum Kind, bool Decays, typename Stored>
void choose_nesterov(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  if (Kind != Momentum::none && step.nesterov) {
    choose_target<Kind, Decays, true>(stretch, step);
  } else {
    choose_target<Kind, Decays, false>(stretch, step);
  }
}

template <Momentum Kind, typename Stored>
void choose_decay(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  if (step.decay != 0) {
    choose_nesterov<Kind, true>(stretch, step);
  } else {
    choose_nesterov<Kind, false>(stretch, step);
  }
}

}  // namespace

template <InstructionSet Set, typename Stored>
void SgdLoops<Set, Stored>::run(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  switch (momentum_of(step)) {
    case Momentum::none:
      return choose_decay<Momentum::none>(stretch, step);
    case Momentum::first:
      return choose_decay<Momentum::first>(stretch, step);
    case Momentum::later:
      return choose_decay<Momentum::later>(stretch, step);
  }
}
template struct SgdLoops<kCompiledFor, float>;
template struct SgdLoops<kCompiledFor, double>;
template struct SgdLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
