#include "lockstep/kernels/dtype.h"

#include <array>

#include "lockstep/base/assert.h"

namespace lockstep {
namespace {

struct Facts {
  std::string_view name;
  std::size_t bytes;
  bool floating;
};

constexpr std::array<Facts, kNumDTypes> kFacts{{{"float32", 4, true},
                                                {"float64", 8, true},
                                                {"float16", 2, true},
                                                {"bfloat16", 2, true},
                                                {"int8", 1, false},
                                                {"int32", 4, false},
                                                {"int64", 8, false},
                                                {"uint8", 1, false},
                                                {"bool", 1, false}}};
constexpr std::array<std::string_view, kNumReduceOps> kOpNames{
    "sum", "average", "min", "max", "product", "weighted average"};

const Facts& facts_of(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  LOCKSTEP_ASSERT(index < kFacts.size(), "invalid DType");
  return kFacts[index];
}

}  // namespace

std::size_t bytes_of(DType dtype) noexcept { return facts_of(dtype).bytes; }
bool is_floating(DType dtype) noexcept { return facts_of(dtype).floating; }
bool divides(ReduceOp op) noexcept {
  return op == ReduceOp::average || op == ReduceOp::weighted_average;
}
std::string_view to_string(DType dtype) noexcept { return facts_of(dtype).name; }

std::string_view to_string(ReduceOp op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  LOCKSTEP_ASSERT(index < kOpNames.size(), "invalid ReduceOp");
  return kOpNames[index];
}

}  // namespace lockstep
