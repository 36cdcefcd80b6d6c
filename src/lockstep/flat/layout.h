// Where parameters and their gradients lie in flat memory. Pure: facts in, places out.
//
// Words: a *segment* is one stretch of memory for one dtype and device; parameters and gradients
// have equal segments. A *slot* is a parameter's place in a segment. Slots follow each other in
// reverse order of registration, which is about the order in which gradients arrive, each on a
// 64-byte line of its own; parameters that do not train come after all that do, so that they cost a
// reduction nothing. The layout depends on nothing but the parameters, so all ranks have the same,
// and no bucket, shard or optimizer moves it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// What must be equal on all ranks.
struct ParameterFacts {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // dense; channels-last stays what it is
  bool trains = true;
};

struct Slot {
  int segment = 0;
  std::int64_t begin = 0;  // elements from the segment's start
  std::int64_t count = 0;  // elements
};

struct Segment {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  std::int64_t length = 0;           // elements, a whole number of 64-byte lines
  std::vector<int> parameters = {};  // in the order of their slots, by number of registration
  std::int64_t trains_length = 0;    // elements up to the last slot that trains
};

struct Layout {
  std::vector<Slot> slots;  // by number of registration
  std::vector<Segment> segments;
};

/// The facts of a parameter as it is now. Strides that leave holes or overlap become contiguous.
[[nodiscard]] ParameterFacts facts_of(const std::string& name, const at::Tensor& parameter);

/// "weight: float32 [512, 128], strides [128, 1], trains", to compare and for messages.
[[nodiscard]] std::string to_string(const ParameterFacts& facts);

[[nodiscard]] Layout lay_out(const std::vector<ParameterFacts>& parameters);

}  // namespace lockstep
