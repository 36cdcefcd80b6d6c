// The layout of a sample: named fields, each with a dtype and a shape that is the same for every
// sample. So the size of a batch is known before the first sample is read, and readers write
// directly into the batch.
//
// Words: a field is a named part of a sample ("input", "target"); a row is one sample's part of a
// field; a block is the contiguous memory of a field's rows: a tensor [rows, shape...].
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct Field {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape{};  // of one sample; empty for a scalar, such as a class label

  friend bool operator==(const Field&, const Field&) = default;
};

/// The number of values in one row.
[[nodiscard]] std::int64_t row_values(const Field& field);
/// The number of bytes in one row.
[[nodiscard]] std::size_t row_bytes(const Field& field);

class SampleLayout {
 public:
  /// Throws UsageError if there is no field, for an empty or repeated name, and for a negative
  /// size.
  explicit SampleLayout(std::vector<Field> fields);
  SampleLayout(std::initializer_list<Field> fields) : SampleLayout(std::vector<Field>(fields)) {}

  [[nodiscard]] const std::vector<Field>& fields() const noexcept { return fields_; }
  [[nodiscard]] int num_fields() const noexcept { return static_cast<int>(fields_.size()); }
  /// The index of the field `name`. Throws UsageError, listing the fields, if there is none.
  [[nodiscard]] int index_of(std::string_view name) const;
  /// The number of bytes of one sample, over all fields.
  [[nodiscard]] std::size_t sample_bytes() const noexcept;

  friend bool operator==(const SampleLayout&, const SampleLayout&) = default;

 private:
  std::vector<Field> fields_;
};

/// For example "input: float [1, 28, 28], target: long".
[[nodiscard]] std::string describe(const SampleLayout& layout);

}  // namespace lockstep
