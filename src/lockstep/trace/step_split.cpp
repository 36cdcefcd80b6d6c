#include "lockstep/trace/step_split.h"

#include <numeric>

namespace lockstep {

std::string_view name_of(StepPart part) noexcept {
  constexpr std::array<std::string_view, kNumStepParts> names{
      "data_wait", "forward",    "backward",   "exposed",
      "optimizer", "evaluation", "checkpoint", "other"};
  return names[static_cast<std::size_t>(part)];
}

std::chrono::nanoseconds StepSplit::whole() const noexcept {
  return std::accumulate(parts.begin(), parts.end(), std::chrono::nanoseconds{0});
}

StepSplit& StepSplit::operator+=(const StepSplit& other) noexcept {
  for (std::size_t i = 0; i < kNumStepParts; ++i) parts[i] += other.parts[i];
  return *this;
}

}  // namespace lockstep
