// Detects an optimizer step that changes parameters before their gradients are averaged: a mark of
// the parameter's value is taken when a gradient arrives under no_sync() and compared before the
// reduction.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/flat/flat_parameters.h"

namespace lockstep {

class ValueMarks {
 public:
  /// `flat` must outlive it.
  explicit ValueMarks(const FlatParameters& flat)
      : flat_(flat), marks_(flat.parameters().size(), std::nullopt) {}

  /// A gradient of `parameter` waits in `buffer`: marks its value.
  void set(int parameter, int buffer);
  void clear(int parameter);
  void clear() noexcept;

  /// Whether `parameter` was marked and has changed since.
  [[nodiscard]] bool is_changed(int parameter) const;
  /// Throws UsageError that names the parameter if it was marked for `buffer` and has changed
  /// since.
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
