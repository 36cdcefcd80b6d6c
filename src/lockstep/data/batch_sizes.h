// The number of samples in an optimizer step, and its division among ranks and micro-batches:
//
//   global = local × accumulation × world
//
// local         samples per forward pass of one rank (the micro-batch size)
// accumulation  forward passes per rank before each optimizer step
// world         number of ranks on all nodes
//
// The user gives some of them; derive_batch_sizes() computes the others. No other file computes
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct BatchSizes {
  std::int64_t local = 1;
  std::int64_t accumulation = 1;
  int world = 1;

  [[nodiscard]] std::int64_t global() const noexcept { return local * accumulation * world; }
  /// Samples per rank and step.
  [[nodiscard]] std::int64_t shard() const noexcept { return local * accumulation; }
  friend bool operator==(const BatchSizes&, const BatchSizes&) = default;
};

/// The sizes that the user has given. derive_batch_sizes() computes those that are empty.
struct BatchRequest {
  int world = 1;
  std::optional<std::int64_t> local{};
  std::optional<std::int64_t> global{};
  std::optional<std::int64_t> accumulation{};
};

/// Computes the missing sizes:
///   only local given        accumulation is 1
///   only global given       accumulation is 1, local = global / world
///   global and local given  accumulation = global / (local × world)
///   all three given         they must agree
/// Throws UsageError, with the nearest valid sizes, if the sizes do not divide or do not agree.
[[nodiscard]] BatchSizes derive_batch_sizes(const BatchRequest& request);

enum class Keep {
  global,  // the same samples in each step; local or accumulation changes with the world
  local,   // the same memory use per rank; the global batch changes with the world, and the
           // learning rate should change with it
};

/// The sizes for another number of ranks. With Keep::global the local batch stays the same if a
/// change of accumulation is enough; otherwise it becomes the largest smaller size that divides.
/// Throws UsageError, listing the nearest valid world sizes, if `world` does not divide the global
/// batch.
[[nodiscard]] BatchSizes change_world(const BatchSizes& sizes, int world, Keep keep);

/// At most `count` world sizes that divide `global`, the nearest to `world` first.
[[nodiscard]] std::vector<int> nearest_worlds(std::int64_t global, int world, int count = 4);

/// For example "global batch 512 = local 16 × accumulation 4 × world 8".
[[nodiscard]] std::string describe(const BatchSizes& sizes);

}  // namespace lockstep
