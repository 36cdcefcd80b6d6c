// The memory of a batch that is being assembled, as data sets and transforms see it: a borrowed
// view of one block per field. Row i of every block belongs to the same sample. Cheap to copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/data/sample_layout.h"

namespace lockstep {

class Rows {
 public:
  /// The rows [first, first + count) of `blocks`: the first byte of each field's block, in the
  /// layout's order. Borrows layout and blocks, which must outlive it.
  Rows(const SampleLayout& layout, std::span<std::byte* const> blocks, std::int64_t first,
       std::int64_t count) noexcept
      : layout_(&layout), blocks_(blocks), first_(first), count_(count) {}

  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] const SampleLayout& layout() const noexcept { return *layout_; }

  /// All rows of a field. `field` is an index into the layout; SampleLayout::index_of finds it by
  /// name.
  [[nodiscard]] std::span<std::byte> bytes(int field) const;
  /// One row of a field.
  [[nodiscard]] std::span<std::byte> row_bytes(int field, std::int64_t row) const;

  /// The same as typed values. Throws UsageError if T is not the field's dtype.
  template <typename T>
  [[nodiscard]] std::span<T> values(int field) const {
    expect_dtype(field, c10::CppTypeToScalarType<T>::value);
    const auto all = bytes(field);
    return {reinterpret_cast<T*>(all.data()), all.size() / sizeof(T)};
  }
  template <typename T>
  [[nodiscard]] std::span<T> row(int field, std::int64_t row) const {
    expect_dtype(field, c10::CppTypeToScalarType<T>::value);
    const auto one = row_bytes(field, row);
    return {reinterpret_cast<T*>(one.data()), one.size() / sizeof(T)};
  }

  /// All rows of a field as a tensor [count, shape...] over the same memory, for code that uses
  /// LibTorch. It costs about a microsecond. Do not keep it after read() or apply() returns.
  [[nodiscard]] at::Tensor tensor(int field) const;
  /// One row as a tensor of the field's shape.
  [[nodiscard]] at::Tensor row_tensor(int field, std::int64_t row) const;

  /// The rows [first, first + count) of these.
  [[nodiscard]] Rows part(std::int64_t first, std::int64_t count) const;

 private:
  void expect_dtype(int field, at::ScalarType asked) const;

  const SampleLayout* layout_;
  std::span<std::byte* const> blocks_;
  std::int64_t first_;
  std::int64_t count_;
};

/// Rows that own their memory, for a transform that changes the layout and for tests.
class RowsBuffer {
 public:
  RowsBuffer(SampleLayout layout, std::int64_t capacity);
  RowsBuffer(const RowsBuffer&) = delete;
  RowsBuffer& operator=(const RowsBuffer&) = delete;

  /// The first `count` rows; `count` is at most the capacity.
  [[nodiscard]] Rows rows(std::int64_t count) const;

 private:
  SampleLayout layout_;
  std::int64_t capacity_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> blocks_;
};

}  // namespace lockstep
