// The memory of a batch in the making, as a reader or a transform sees it: a borrowed view of one
// block a field. Row i of every block belongs to the same sample. Cheap to copy; it owns nothing.
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
  /// `blocks` has the first byte of each field's block, in the layout's order; both outlive this.
  Rows(const SampleLayout& layout, std::span<std::byte* const> blocks, std::int64_t first,
       std::int64_t count) noexcept
      : layout_(&layout), blocks_(blocks), first_(first), count_(count) {}

  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  [[nodiscard]] const SampleLayout& layout() const noexcept { return *layout_; }

  /// All rows of a field. Fields are counted in the layout's order; index_of finds one by name.
  [[nodiscard]] std::span<std::byte> bytes(int field) const;
  /// One row of a field.
  [[nodiscard]] std::span<std::byte> row_bytes(int field, std::int64_t row) const;

  /// The same as values. Throws UsageError when T is not the field's dtype.
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

  /// All rows of a field as a tensor [count, shape...] over the same memory, for code that computes
  /// with LibTorch. It costs about a microsecond and must not outlive the call it was made in.
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

/// Rows with memory of their own, for a transform that needs room beside the batch and for tests.
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
