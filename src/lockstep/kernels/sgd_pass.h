// One step of SGD over contiguous memory, in one pass; see adam_pass.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/caching.h"
#include "lockstep/kernels/dispatch.h"
#include "lockstep/kernels/elements.h"
#include "lockstep/kernels/moved_bytes.h"

namespace lockstep {

struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double decay = 0;
  bool nesterov = false;
  bool is_first = false;  // first step: the momentum buffer is set to the gradient
};

/// The options of an optimizer on which the constants of all its steps depend.
struct SgdRule {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
};

/// The constants of step number `t` of a parameter, counted from 1.
[[nodiscard]] constexpr SgdStep sgd_step(const SgdRule& rule, double lr, double weight_decay,
                                         std::int64_t t) noexcept {
  return {.lr = lr,
          .momentum = rule.momentum,
          .dampening = rule.dampening,
          .decay = weight_decay,
          .nesterov = rule.nesterov,
          .is_first = t == 1};
}

template <typename Stored>
struct SgdStretch {
  using Wide = WideOf<Stored>;

  Stored* values = nullptr;
  const Stored* gradients = nullptr;
  Wide* momenta = nullptr;  // null without momentum
  Wide* masters = nullptr;  // BFloat16 only
  std::size_t count = 0;
  bool gradients_are_packed = false;  // as the state
  // Null: in `values`, which the pass then updates in place. Otherwise `values` may be `gradients`,
  // which the pass then overwrites.
  const Stored* old_values = nullptr;
  Caching caching = Caching::through;  // of new values in memory of their own

  /// Elements [begin, end).
  [[nodiscard]] constexpr SgdStretch part(std::size_t begin, std::size_t end) const noexcept {
    return part(begin, begin, end - begin);
  }
  /// `length` values and gradients from `begin`; their state, and packed gradients, are from
  /// `packed_begin`.
  [[nodiscard]] constexpr SgdStretch part(std::size_t begin, std::size_t packed_begin,
                                          std::size_t length) const noexcept {
    return {values + begin,
            gradients + (gradients_are_packed ? packed_begin : begin),
            momenta == nullptr ? nullptr : momenta + packed_begin,
            masters == nullptr ? nullptr : masters + packed_begin,
            length,
            gradients_are_packed,
            old_values == nullptr ? nullptr : old_values + begin,
            caching};
  }
};

/// What a step loads and stores.
template <typename Stored>
[[nodiscard]] MovedBytes moved_by(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept {
  const auto masters = stretch.masters == nullptr ? 0 : sizeof(WideOf<Stored>);
  const auto momenta = stretch.momenta == nullptr ? 0 : sizeof(WideOf<Stored>);
  return {.loaded = stretch.count * (2 * sizeof(Stored) + masters + (step.is_first ? 0 : momenta)),
          .stored = stretch.count * (sizeof(Stored) + masters + momenta)};
}

template <InstructionSet, typename Stored>
struct SgdLoops {
  static void run(const SgdStretch<Stored>& stretch, const SgdStep& step) noexcept;
};

template <typename Stored>
void sgd_pass(const SgdStretch<Stored>& stretch, const SgdStep& step,
              InstructionSet set = best_instruction_set()) noexcept {
  note_moved(moved_by(stretch, step));
  dispatch<SgdLoops, Stored>(set, [&](auto loops) { loops.run(stretch, step); });
}

}  // namespace lockstep
