#include "lockstep/train/present_gradients_internal.h"

namespace lockstep {

std::vector<FlatRange> present_gradients(FlatParameters& flat) {
  const auto& slots = flat.slots();
  const auto count = static_cast<int>(flat.parameters().size());
  for (int index = 0; index < count; ++index) {
    if (!slots.is_in_place(index)) flat.expect_in_place();  // names all of them
    (void)slots.take_in(index);
  }
  slots.flush();
  return flat.bound_gradients();
}

at::Tensor gradients_of(const FlatParameters& flat, const FlatRange& range) {
  return flat.gradients(range.segment).narrow(0, range.begin, range.end - range.begin);
}

}  // namespace lockstep
