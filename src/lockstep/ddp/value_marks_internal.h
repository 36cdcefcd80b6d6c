// Did a step change parameters while gradients still waited to be averaged? Each parameter is
// marked when such a gradient comes, and looked at before it is averaged.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

class ValueMarks {
 public:
  /// `flat` outlives it.
  explicit ValueMarks(const FlatParameters& flat)
      : flat_(flat), marks_(flat.parameters().size(), std::nullopt) {}

  void set(int parameter);
  void clear(int parameter);
  void clear() noexcept;

  /// Whether it was marked and has changed since.
  [[nodiscard]] bool is_changed(int parameter) const;
  /// Throws UsageError, naming the parameter, when it was changed since it was marked.
  void expect_unchanged(int parameter) const;

 private:
  const FlatParameters& flat_;
  std::vector<std::optional<std::uint64_t>> marks_;  // by parameter
};

}  // namespace lockstep
