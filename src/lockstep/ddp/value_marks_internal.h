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

  /// A gradient of `parameter` waits in `buffer`.
  void set(int parameter, int buffer);
  void clear(int parameter);
  void clear() noexcept;

  /// Whether it was marked and has changed since.
  [[nodiscard]] bool is_changed(int parameter) const;
  /// Throws UsageError, naming the parameter, when it was changed since it was marked for `buffer`.
  void expect_unchanged(int parameter, int buffer) const;

 private:
  struct Mark {
    int buffer = 0;
    std::uint64_t value = 0;
  };

  const FlatParameters& flat_;
  std::vector<std::optional<Mark>> marks_;  // by parameter
};

}  // namespace lockstep
