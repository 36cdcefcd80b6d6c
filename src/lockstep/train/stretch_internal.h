// From ranges of flat memory to the plain pointers that the passes take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/flat/flat_parameters.h"
#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

/// Where `range` begins in `segment`. The last argument says the type alone.
template <typename T>
T* elements_at(const at::Tensor& segment, const StepRange& range, const T*) {
  return static_cast<T*>(segment.data_ptr()) + range.begin;
}

/// Calls `pass` with a Stretch<Stored, Wide> whose values, gradients, masters and count are those
/// of the range.
template <template <typename, typename> typename Stretch, typename Pass>
void with_stretch(const FlatParameters& flat, const StepRange& range, const at::Tensor& masters,
                  Pass pass) {
  const auto& values = flat.values(range.segment);
  const auto& gradients = flat.gradients(range.segment);
  const auto run = [&]<typename Stored, typename Wide>(Stretch<Stored, Wide> stretch) {
    stretch.values = elements_at(values, range, stretch.values);
    stretch.gradients = elements_at<Stored>(gradients, range, nullptr);
    if (masters.defined()) stretch.masters = elements_at(masters, range, stretch.masters);
    stretch.count = static_cast<std::size_t>(range.end - range.begin);
    pass(stretch);
  };
  switch (values.scalar_type()) {
    case at::kDouble:
      return run(Stretch<double, double>{});
    case at::kBFloat16:
      return run(Stretch<std::uint16_t, float>{});
    default:  // the constructor has let no other in
      return run(Stretch<float, float>{});
  }
}

}  // namespace lockstep
