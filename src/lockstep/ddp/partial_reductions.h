// A step whose micro-batches are reduced one by one (DdpOptions::reduce_each_micro_batch): which
// part of the step has been reduced, and what the reductions found. Their averages are added, each
// multiplied by its weight, and divided by the sum of the weights at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/base/call_flags.h"
#include "lockstep/ddp/step_phase.h"

namespace lockstep {

class PartialReductions {
 public:
  /// The micro-batches of `of_step` that have not been reduced.
  [[nodiscard]] StepTally rest_of(const StepTally& of_step) const noexcept {
    auto rest = of_step;
    rest.micro_batches -= reduced_.micro_batches;
    rest.batches -= reduced_.batches;
    rest.samples -= reduced_.samples;
    return rest;
  }

  /// All micro-batches of `of_step` have been reduced; `used` is by parameter.
  void add(const StepTally& of_step, const GroupFlags& flags, const std::vector<bool>& used) {
    reduced_ = of_step;
    is_empty_ = false;
    weight_ += flags.sum;
    any_ |= flags.any;
    used_.resize(used.size(), false);
    for (std::size_t i = 0; i < used.size(); ++i) used_[i] = used_[i] || used[i];
  }

  [[nodiscard]] bool is_empty() const noexcept { return is_empty_; }
  [[nodiscard]] std::int64_t weight() const noexcept { return weight_; }  // of all ranks
  [[nodiscard]] std::uint32_t any() const noexcept { return any_; }       // bits of GroupFlags
  [[nodiscard]] const std::vector<bool>& used() const noexcept { return used_; }

 private:
  bool is_empty_ = true;
  StepTally reduced_;
  std::int64_t weight_ = 0;
  std::uint32_t any_ = 0;
  std::vector<bool> used_;
};

}  // namespace lockstep
