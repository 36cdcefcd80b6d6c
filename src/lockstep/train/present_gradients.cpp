#include "lockstep/train/present_gradients_internal.h"

#include <utility>

namespace lockstep {

std::vector<FlatRange> present_gradients(FlatParameters& flat) {
  flat.expect_intact();
  const auto& slots = flat.slots();
  const auto count = static_cast<int>(flat.parameters().size());
  std::vector<bool> averaged;
  bool is_any_assigned = false;
  for (int index = 0; index < count; ++index) {
    if (!slots.is_in_place(index)) flat.expect_in_place();  // names all of them
    const bool is_assigned = slots.take_in(index);
    is_any_assigned = is_any_assigned || is_assigned;
    averaged.push_back(is_assigned || flat.is_averaged(index));
  }
  slots.flush();
  if (is_any_assigned) flat.set_averaged(std::move(averaged));
  return flat.present_gradients();
}

std::vector<FlatRange> owned_gradients(FlatParameters& flat) {
  (void)present_gradients(flat);
  return flat.owned_gradients();
}

at::Tensor gradients_of(const FlatParameters& flat, const FlatRange& range) {
  return flat.gradients(range.segment).narrow(0, range.begin, range.end - range.begin);
}

}  // namespace lockstep
