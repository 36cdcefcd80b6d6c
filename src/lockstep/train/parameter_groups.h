// Parameter groups of an optimizer: a predicate and the options that differ for the parameters it
// matches. Each parameter belongs to the first group whose predicate matches it; a parameter that
// no group matches has the optimizer's own options.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

struct ParameterGroup {
  std::function<bool(const FlatParameter&)> matches;
  double lr_factor = 1;                     // multiplies the step's lr; 0 freezes the parameters
  std::optional<double> weight_decay = {};  // nullopt: the optimizer's
};

/// A group without weight decay for parameters with fewer than two dimensions: biases, and weights
/// and biases of normalization layers.
[[nodiscard]] ParameterGroup no_decay_for_biases_and_norms();

/// A predicate for parameters whose name contains `part`: {.matches = named("head.")}.
[[nodiscard]] std::function<bool(const FlatParameter&)> named(std::string part);

}  // namespace lockstep
