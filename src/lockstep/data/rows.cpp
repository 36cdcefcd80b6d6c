#include "lockstep/data/rows.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const Field& field_of(const SampleLayout& layout, int field) {
  LOCKSTEP_ASSERT(field >= 0 && field < layout.num_fields(), "a field index is in the layout");
  return layout.fields()[static_cast<std::size_t>(field)];
}

}  // namespace

std::span<std::byte> Rows::bytes(int field) const {
  const auto each = lockstep::row_bytes(field_of(*layout_, field));
  return {blocks_[static_cast<std::size_t>(field)] + static_cast<std::size_t>(first_) * each,
          static_cast<std::size_t>(count_) * each};
}

std::span<std::byte> Rows::row_bytes(int field, std::int64_t row) const {
  LOCKSTEP_ASSERT(row >= 0 && row < count_, "a row index is in [0, count)");
  const auto each = lockstep::row_bytes(field_of(*layout_, field));
  return {blocks_[static_cast<std::size_t>(field)] + static_cast<std::size_t>(first_ + row) * each,
          each};
}

at::Tensor Rows::tensor(int field) const {
  const auto& what = field_of(*layout_, field);
  std::vector<std::int64_t> shape{count_};
  shape.insert(shape.end(), what.shape.begin(), what.shape.end());
  return at::from_blob(bytes(field).data(), shape, at::dtype(what.dtype));
}

at::Tensor Rows::row_tensor(int field, std::int64_t row) const {
  const auto& what = field_of(*layout_, field);
  return at::from_blob(row_bytes(field, row).data(), what.shape, at::dtype(what.dtype));
}

Rows Rows::part(std::int64_t first, std::int64_t count) const {
  LOCKSTEP_ASSERT(first >= 0 && count >= 0 && first + count <= count_, "a part is within the rows");
  return {*layout_, blocks_, first_ + first, count};
}

void Rows::expect_dtype(int field, at::ScalarType asked) const {
  const auto& what = field_of(*layout_, field);
  if (what.dtype != asked) {
    throw UsageError(fmt::format("field {:?} holds {}, not {}", what.name,
                                 c10::toString(what.dtype), c10::toString(asked)));
  }
}

RowsBuffer::RowsBuffer(SampleLayout layout, std::int64_t capacity)
    : layout_(std::move(layout)), capacity_(capacity) {
  for (const auto& field : layout_.fields()) {
    memory_.emplace_back(lockstep::row_bytes(field) * static_cast<std::size_t>(capacity));
  }
  for (auto& block : memory_) blocks_.push_back(block.data());
}

Rows RowsBuffer::rows(std::int64_t count) const {
  LOCKSTEP_ASSERT(count >= 0 && count <= capacity_, "a buffer has at most `capacity` rows");
  return {layout_, blocks_, 0, count};
}

}  // namespace lockstep
