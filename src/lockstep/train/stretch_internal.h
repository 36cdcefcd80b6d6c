// Converts ranges of flat buffers to the plain pointers that the optimizer kernels take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "lockstep/base/half.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/parallel.h"
#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

/// A pointer to the first element of `range` in `segment`. The last argument gives only the type.
template <typename T>
T* elements_at(const at::Tensor& segment, const StepRange& range, const T*) {
  return static_cast<T*>(segment.data_ptr()) + range.begin;
}

/// Makes a Stretch<Stored> with the values, gradients, masters and count of the range, lets
/// `add_state` set the other fields, and calls `pass` with parts of it on LibTorch's intra-op
/// threads.
template <template <typename> typename Stretch, typename AddState, typename Pass>
void for_each_part(const FlatParameters& flat, const StepRange& range, const at::Tensor& masters,
                   const AddState& add_state, const Pass& pass) {
  const auto& values = flat.values(range.segment);
  const auto& gradients = flat.gradients(range.segment);
  const auto run = [&]<typename Stored>(Stretch<Stored> stretch) {
    stretch.values = elements_at(values, range, stretch.values);
    stretch.gradients = elements_at<Stored>(gradients, range, nullptr);
    if (masters.defined()) stretch.masters = elements_at(masters, range, stretch.masters);
    stretch.count = static_cast<std::size_t>(range.end - range.begin);
    add_state(stretch);
    constexpr std::size_t kUnit =
        32;  // a cache line of 16-bit elements, so that threads share no line
    in_parts(stretch.count, kUnit,
             [&](std::size_t begin, std::size_t end) { pass(stretch.part(begin, end)); });
  };
  switch (values.scalar_type()) {
    case at::kDouble:
      return run(Stretch<double>{});
    case at::kBFloat16:
      return run(Stretch<BFloat16>{});
    default:  // the constructor accepts no other dtype
      return run(Stretch<float>{});
  }
}

}  // namespace lockstep
