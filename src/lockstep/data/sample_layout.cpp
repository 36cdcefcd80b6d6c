#include "lockstep/data/sample_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void check(const std::vector<Field>& fields) {
  if (fields.empty()) throw UsageError("a sample layout has no fields; give one or more");
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto& field = fields[i];
    if (field.name.empty())
      throw UsageError(fmt::format("field {} of a sample layout has no name", i));
    for (std::size_t earlier = 0; earlier < i; ++earlier) {
      if (fields[earlier].name == field.name) {
        throw UsageError(
            fmt::format("two fields of a sample layout have the name {:?}", field.name));
      }
    }
    for (const auto size : field.shape) {
      if (size < 0) {
        throw UsageError(fmt::format("field {:?} has shape [{}]; sizes must not be negative",
                                     field.name, fmt::join(field.shape, ", ")));
      }
    }
  }
}

}  // namespace

std::int64_t row_values(const Field& field) {
  return std::accumulate(field.shape.begin(), field.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

std::size_t row_bytes(const Field& field) {
  return static_cast<std::size_t>(row_values(field)) * c10::elementSize(field.dtype);
}

SampleLayout::SampleLayout(std::vector<Field> fields) : fields_(std::move(fields)) {
  check(fields_);
}

int SampleLayout::index_of(std::string_view name) const {
  for (int i = 0; i < num_fields(); ++i) {
    if (fields_[static_cast<std::size_t>(i)].name == name) return i;
  }
  throw UsageError(
      fmt::format("the samples have no field {:?}; their fields are {}", name, describe(*this)));
}

std::size_t SampleLayout::sample_bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto& field : fields_) sum += row_bytes(field);
  return sum;
}

std::string describe(const SampleLayout& layout) {
  std::string text;
  for (const auto& field : layout.fields()) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}: {}", field.name, c10::toString(field.dtype));
    if (!field.shape.empty()) text += fmt::format(" [{}]", fmt::join(field.shape, ", "));
  }
  return text;
}

}  // namespace lockstep
