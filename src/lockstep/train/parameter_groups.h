// Which parameters an optimizer treats otherwise: a group is a question asked about each parameter,
// and what differs for those it takes. A parameter belongs to the first group that takes it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

struct ParameterGroup {
  std::function<bool(const FlatParameter&)> takes;
  double lr_factor = 1;                   // times the step's lr; 0 freezes
  std::optional<double> weight_decay = {};  // none: the optimizer's
};

/// No decay for parameters with less than two dimensions: biases, and the scales and shifts of
/// norms.
[[nodiscard]] ParameterGroup no_decay_for_biases_and_norms();

/// For parameters whose name contains `part`, as in {.takes = named("head.")}.
[[nodiscard]] std::function<bool(const FlatParameter&)> named(std::string part);

}  // namespace lockstep
