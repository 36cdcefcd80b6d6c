// One step of SGD over stretches of memory, in one pass; see adam_pass_internal.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

struct SgdStep {
  double rate = 0;
  double momentum = 0;
  double dampening = 0;
  double decay = 0;
  bool nesterov = false;
  bool is_first = false;  // the momentum becomes the gradient
};

template <typename Stored, typename Wide>
struct SgdStretch {
  Stored* values = nullptr;
  const Stored* gradients = nullptr;
  Wide* momenta = nullptr;  // none without momentum
  Wide* masters = nullptr;  // of 16-bit values, none otherwise
  std::size_t count = 0;
};

void sgd_pass(const SgdStretch<float, float>& stretch, const SgdStep& step) noexcept;
void sgd_pass(const SgdStretch<double, double>& stretch, const SgdStep& step) noexcept;
void sgd_pass(const SgdStretch<std::uint16_t, float>& stretch, const SgdStep& step) noexcept;

}  // namespace lockstep
