// Where parameters and their gradients lie in flat buffers: a pure function of the parameters'
// metadata.
//
// Words: a *segment* is one contiguous stretch of memory for one dtype and device; parameters and
// gradients have segments of equal layout. A *slot* is a parameter's range of a segment.
//
// Slots are in reverse order of registration, which is about the order in which gradients arrive.
// Each slot begins on a 64-byte boundary. Frozen parameters come after all trainable ones, so that
// they add nothing to a reduction. The layout depends on the parameters only: all ranks have the
// same one, and it is independent of buckets, shards and optimizers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The metadata of a parameter, which must be equal on all ranks.
struct ParameterFacts {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // dense; channels-last strides are kept
  bool trains = true;                 // requires_grad
};

struct Slot {
  int segment = 0;
  std::int64_t begin = 0;  // elements from the segment's start
  std::int64_t count = 0;  // elements
};

struct Segment {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  std::int64_t length = 0;           // elements; a multiple of 64 bytes
  std::vector<int> parameters = {};  // indices by registration, in the order of their slots
  std::int64_t trains_length = 0;    // elements up to the end of the last trainable slot
};

struct Layout {
  std::vector<Slot> slots;  // in the order of registration
  std::vector<Segment> segments;

  [[nodiscard]] bool is_on_cpu() const;  // all of it
};

/// The current metadata of `parameter`. Strides with gaps or overlaps become contiguous ones.
[[nodiscard]] ParameterFacts facts_of(const std::string& name, const at::Tensor& parameter);

/// "weight: Float [512, 128], strides [128, 1], on cpu, trains", for comparison and messages.
[[nodiscard]] std::string to_string(const ParameterFacts& facts);

[[nodiscard]] Layout lay_out(const std::vector<ParameterFacts>& parameters);

}  // namespace lockstep
