#include "lockstep/train/present_gradients_internal.h"

namespace lockstep {

std::vector<FlatRange> present_gradients(FlatParameters& flat) {
  flat.expect_intact();
  const auto count = static_cast<int>(flat.parameters().size());
  for (int index = 0; index < count; ++index) {
    if (!flat.slots().is_in_place(index)) flat.expect_in_place();  // names all of them
  }
  flat.move_in_assigned();
  flat.expect_gradients();
  return flat.present_gradients();
}

std::vector<FlatRange> owned_gradients(FlatParameters& flat) {
  (void)present_gradients(flat);
  return flat.owned_gradients();
}

}  // namespace lockstep
