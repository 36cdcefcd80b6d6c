// Where the time of a training step goes on one rank. A step is one round of the training loop: it
// includes the evaluation and the save that follow its update, so that every moment of the loop
// belongs to one step and the parts sum to the step.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace lockstep {

enum class StepPart {
  data_wait,   // waiting for the loader
  forward,     // from a batch to its loss
  backward,    // without exposed communication
  exposed,     // exposed communication: waiting for gradients after backward
  optimizer,   // clipping, the update, zero_grad
  evaluation,  // with sample text
  checkpoint,  // checkpoint stall: copying the state, and waiting for an earlier save
  other,       // the remainder: the loop itself, logs
};

inline constexpr std::size_t kNumStepParts = 8;

/// The names in metrics.jsonl, without the unit: "data_wait", "forward", …
[[nodiscard]] std::string_view name_of(StepPart part) noexcept;

/// Times by part. Their sum is the time of the step, or of several steps.
struct StepSplit {
  std::array<std::chrono::nanoseconds, kNumStepParts> parts{};

  [[nodiscard]] std::chrono::nanoseconds& operator[](StepPart part) noexcept {
    return parts[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] std::chrono::nanoseconds operator[](StepPart part) const noexcept {
    return parts[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] std::chrono::nanoseconds whole() const noexcept;
  StepSplit& operator+=(const StepSplit& other) noexcept;

  friend bool operator==(const StepSplit&, const StepSplit&) = default;
};

}  // namespace lockstep
