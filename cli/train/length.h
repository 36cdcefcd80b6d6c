// A duration in training: a number of steps, epochs or tokens, or a time. One type for all
// durations and intervals of `lockstep train`.
//
// Two spellings:
// - With a unit: 300st (steps), 2ep (epochs), 50Mtok (tokens), 10min (time). Intervals such as
//   --eval-every take it; a number without a unit means steps.
// - Without a unit, for the options that name theirs: --steps 300, --epochs 2, --tokens 50M. --time
//   takes 90s, 10min or 6h.
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

/// Reads the spelling with a unit; k, M and B (or G) may precede the unit. Throws UsageError that
/// names `option` and the text.
[[nodiscard]] TrainLength parse_train_length(std::string_view option, std::string_view text);
/// Writes it: "300st", "2ep", "50Mtok", "90s".
[[nodiscard]] std::string to_string(const TrainLength& length);

/// The option that sets the length of a run in `unit`: "--steps", "--epochs", "--tokens", "--time".
[[nodiscard]] std::string_view length_option(TrainLength::Unit unit);
/// Reads the value of that option: "300", "10k", "0.5", "50M"; for a time "90s", "10min", "6h".
/// Throws UsageError that names the option and the text.
[[nodiscard]] TrainLength parse_length_in(TrainLength::Unit unit, std::string_view text);
/// Writes it: "300", "0.5", "50M", "90s".
[[nodiscard]] std::string value_text(const TrainLength& length);

/// "300 steps", "1 epoch", "50M tokens", "90 s".
[[nodiscard]] std::string in_words(const TrainLength& length);

/// The size of a step in the other units.
struct StepSize {
  std::int64_t steps_per_epoch = 1;
  std::int64_t tokens = 0;  // per step, over all ranks; 0: the data has no tokens
};

/// Returns `length` in steps, rounded up; nullopt for a time. Throws UsageError that names `option`
/// for a length in tokens when the data has none.
[[nodiscard]] std::optional<std::int64_t> try_steps(std::string_view option,
                                                    const TrainLength& length, StepSize size);

}  // namespace lockstep::cli
