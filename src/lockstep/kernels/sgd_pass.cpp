#include "lockstep/kernels/sgd_pass.h"

#include "lockstep/kernels/elements.h"

namespace lockstep {
namespace {

enum class Momentum { none, first, later };

template <Momentum Kind, bool Decays, bool Nesterov, typename Stored>
void pass(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  using Wide = WideOf<Stored>;
  const auto lr = static_cast<Wide>(step.lr);
  const auto momentum = static_cast<Wide>(step.momentum);
  const auto undamped = static_cast<Wide>(1 - step.dampening);
  const auto decay = static_cast<Wide>(step.decay);
  Stored* __restrict values = stretch.values;
  const Stored* __restrict gradients = stretch.gradients;
  Wide* __restrict momenta = stretch.momenta;
  Wide* __restrict masters = stretch.masters;
  for (std::size_t i = 0; i < stretch.count; ++i) {
    Wide value = read_value(values[i], masters, i);
    Wide gradient = widened(gradients[i]);
    if constexpr (Decays) gradient = gradient + value * decay;
    if constexpr (Kind != Momentum::none) {
      Wide moved = gradient;
      if constexpr (Kind == Momentum::later) moved = momenta[i] * momentum + gradient * undamped;
      momenta[i] = moved;
      gradient = Nesterov ? gradient + moved * momentum : moved;
    }
    value = value - gradient * lr;
    write_value(values[i], masters, i, value);
  }
}

template <Momentum Kind, bool Decays, typename Stored>
void choose_nesterov(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  if (Kind != Momentum::none && step.nesterov) {
    pass<Kind, Decays, true>(stretch, step);
  } else {
    pass<Kind, Decays, false>(stretch, step);
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
  if (step.momentum == 0) {
    choose_decay<Momentum::none>(stretch, step);
  } else if (step.is_first) {
    choose_decay<Momentum::first>(stretch, step);
  } else {
    choose_decay<Momentum::later>(stretch, step);
  }
}
template struct SgdLoops<kCompiledFor, float>;
template struct SgdLoops<kCompiledFor, double>;
template struct SgdLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
