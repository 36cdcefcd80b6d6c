// How long something lasts in training, as a person types it: 300st (steps), 2ep (epochs), 50Mtok
// (tokens), 10min (time). One type for all durations and intervals of `lockstep train`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cli {

struct TrainLength {
  enum class Unit { steps, epochs, tokens, seconds };

  double amount = 0;
  Unit unit = Unit::steps;

  friend bool operator==(const TrainLength&, const TrainLength&) = default;
};

/// Steps may go without a unit; k, M and B (or G) may stand before one. Throws UsageError, naming
/// `option` and what was typed, for anything else.
[[nodiscard]] TrainLength parse_train_length(std::string_view option, std::string_view text);

/// As it is typed: "300st", "2ep", "50Mtok", "90s".
[[nodiscard]] std::string to_string(const TrainLength& length);

/// What a step is, in the other units.
struct StepSize {
  std::int64_t steps_per_epoch = 1;
  std::int64_t tokens = 0;  // in a step, over all ranks; 0 where samples are no tokens
};

/// `length` in steps, rounded up; none for a time. Throws UsageError for tokens where there are
/// none, naming `option`.
[[nodiscard]] std::optional<std::int64_t> try_steps(std::string_view option,
                                                    const TrainLength& length, StepSize size);

}  // namespace lockstep::cli
