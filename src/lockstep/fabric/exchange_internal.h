// The data of a reduction in flight that moves between members (exchange_plan.h, ring.h): what
// this rank sends, where it receives, and what it combines. A recipe calls advance() and
// awaits what that returns, until it returns nullopt.
//
// All that a rank will receive is expected before it enters the call: peers may be transfers ahead.
// The results of a halving and of a ring arrive in their final memory, which may be that of the
// input: this rank has sent its input of these elements, or combined it, before their owner can
// return a result.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/fabric/exchange_plan.h"
#include "lockstep/fabric/recipe.h"
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {

class NetworkCall;

/// The vector that is reduced, and its members.
struct ExchangeData {
  std::vector<int> members = {};       // ranks of the group
  int own = 0;                         // the member that this rank is
  DType input_dtype = DType::float32;  // that of the call, or that of its partial sums
  const std::byte* input = nullptr;
  std::size_t count = 0;  // elements
  // Of all elements, in the call's dtype; nullptr: this rank keeps only what it delivers
  // (collective reduce away from its root, reduce_scatter).
  std::byte* result = nullptr;
  int num_contributions = 0;  // ranks of the group, by which an average divides
  bool ends_call = true;      // no rank awaits what this rank does after the exchange
  // If set, computes elements of the input when they are first needed, so that a block is sent or
  // combined while it is in the cache. Returns where they are. `again`: in `input`, where they
  // stay. `once`: at most kPreparedBytes, valid until the next call. Not called by a ring.
  enum class Use { again, once };
  std::function<const std::byte*(const Part& elements, Use use)> prepare = {};
};

class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange() = default;

  /// Moves what can be moved; returns what it awaits then, nullopt once it is done.
  [[nodiscard]] virtual std::optional<Awaited> advance() = 0;
};

/// Makes the exchange of `call`, which must outlive it, and states what this rank will receive.
/// Called before the rank enters. `algorithm` is doubling, halving or ring.
[[nodiscard]] std::unique_ptr<Exchange> make_exchange(ExchangeAlgorithm algorithm,
                                                      NetworkCall& call, ExchangeData data);
/// The data of a call among all ranks of its group.
[[nodiscard]] ExchangeData whole_data_of(const NetworkCall& call);

/// Parts of transfers (docs/wire_format.md).
constexpr std::uint32_t kDeliveryPart = 3;
constexpr std::uint32_t kFirstTransferPart = 4;
constexpr std::uint32_t kFirstReturnPart = 4 + 128;
/// Blocks are combined as soon as they have arrived, in pieces that fit into the second-level
/// cache.
constexpr std::size_t kExchangeBlockBytes = 256U << 10;
/// Of input that is computed to be combined at once: it stays in the first caches.
constexpr std::size_t kPreparedBytes = 64U << 10;

}  // namespace lockstep
