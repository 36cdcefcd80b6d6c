// The ring all-reduce, as in a textbook: a reduce-scatter, then an all-gather.
//
// The members form a ring; the elements are divided into one chunk per member. In transfer t of the
// reduce-scatter, member m sends its sum of chunk m - t to member m + 1, and adds its own input to
// the sum of chunk m - t - 1, which it receives from member m - 1 (all modulo the number of
// members). After N - 1 transfers member m has the sum of chunk m + 1. In transfer t of the
// all-gather it sends chunk m + 1 - t and receives chunk m - t. Each member sends 2(N - 1)/N of the
// input.
//
// Each chunk is added in another order, which depends on N: the bits are not those of the tree.
// Sums of 16-bit data are rounded to 16 bits in every transfer. The results of all members are
// bit-identical.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/fabric/exchange_internal.h"
#include "lockstep/fabric/host_plan.h"

namespace lockstep {

/// What a member sends to the next one and receives from the previous one in a transfer; elements.
struct RingTransfer {
  Part send;
  Part receive;
};

struct RingPlan {
  std::vector<RingTransfer> reduce_scatter;
  std::vector<RingTransfer> all_gather;
};

[[nodiscard]] RingPlan plan_ring(int member, int size, std::size_t count, std::size_t alignment);

/// The ring as the exchange of an all_reduce of sums or averages. Inputs have the call's dtype.
[[nodiscard]] std::unique_ptr<Exchange> make_ring(NetworkCall& call, ExchangeData data);

}  // namespace lockstep
