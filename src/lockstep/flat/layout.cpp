#include "lockstep/flat/layout.h"

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::int64_t kLineBytes = 64;

std::vector<std::int64_t> contiguous_strides(at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

// The segment for parameters of this dtype and device; made if there is none.
int segment_for(std::vector<Segment>& segments, const ParameterFacts& facts) {
  const auto found = std::find_if(segments.begin(), segments.end(), [&](const Segment& segment) {
    return segment.dtype == facts.dtype && segment.device == facts.device;
  });
  if (found != segments.end()) return static_cast<int>(found - segments.begin());
  segments.push_back({.dtype = facts.dtype, .device = facts.device});
  return static_cast<int>(segments.size()) - 1;
}

}  // namespace

bool Layout::is_on_cpu() const {
  return std::all_of(segments.begin(), segments.end(),
                     [](const Segment& segment) { return segment.device.is_cpu(); });
}

ParameterFacts facts_of(const std::string& name, const at::Tensor& parameter) {
  const auto sizes = parameter.sizes();
  return {.name = name,
          .dtype = parameter.scalar_type(),
          .device = parameter.device(),
          .sizes = sizes.vec(),
          .strides = parameter.is_non_overlapping_and_dense() ? parameter.strides().vec()
                                                              : contiguous_strides(sizes),
          .trains = parameter.requires_grad()};
}

std::string to_string(const ParameterFacts& facts) {
  return fmt::format("{}: {} [{}], strides [{}], on {}, {}", facts.name, c10::toString(facts.dtype),
                     fmt::join(facts.sizes, ", "), fmt::join(facts.strides, ", "),
                     facts.device.str(), facts.trains ? "trains" : "frozen");
}

Layout lay_out(const std::vector<ParameterFacts>& parameters) {
  Layout layout;
  layout.slots.resize(parameters.size());
  for (const bool trains : {true, false}) {
    for (std::size_t i = parameters.size(); i-- > 0;) {
      const auto& facts = parameters[i];
      if (facts.trains != trains) continue;
      const int index = segment_for(layout.segments, facts);
      auto& segment = layout.segments[static_cast<std::size_t>(index)];
      const auto count = c10::multiply_integers(facts.sizes);
      const auto line = std::max<std::int64_t>(
          1, kLineBytes / static_cast<std::int64_t>(elementSize(facts.dtype)));
      layout.slots[i] = {.segment = index, .begin = segment.length, .count = count};
      segment.parameters.push_back(static_cast<int>(i));
      segment.length += (count + line - 1) / line * line;
      if (trains) segment.trains_length = segment.length;
    }
  }
  return layout;
}

}  // namespace lockstep
