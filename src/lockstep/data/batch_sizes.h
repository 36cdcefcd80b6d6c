// How many samples a step takes, and who takes them:
//
//   global = local × accumulation × world
//
// local is what one forward pass of one rank takes, accumulation the number of forward passes
// before an optimizer step, world the number of ranks on all nodes. Given some, the rest follows;
// this is the only place where that is computed.
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
  /// What one rank takes in a step.
  [[nodiscard]] std::int64_t shard() const noexcept { return local * accumulation; }
  friend bool operator==(const BatchSizes&, const BatchSizes&) = default;
};

/// What the user has said; what is left out is derived.
struct BatchRequest {
  int world = 1;
  std::optional<std::int64_t> local{};
  std::optional<std::int64_t> global{};
  std::optional<std::int64_t> accumulation{};
};

/// local alone: no accumulation. global alone: as large a local batch as it gives. global and
/// local: accumulation follows. All three must agree. Throws UsageError with the nearest choices
/// that work.
[[nodiscard]] BatchSizes derive_batch_sizes(const BatchRequest& request);

enum class Keep {
  global,  // the same steps on the same samples: local or accumulation changes with the world
  local,   // the same memory on each rank: the global batch grows with the world, and so should the
           // learning rate
};

/// The sizes after the world has changed. Keeping the global batch, the local batch stays where
/// accumulation can make up for the change, and is the largest smaller one otherwise.
/// Throws UsageError, listing the nearest world sizes that work, when the global batch does not
/// split.
[[nodiscard]] BatchSizes change_world(const BatchSizes& sizes, int world, Keep keep);

/// The world sizes that split `global`, the nearest to `world` on either side first: at most
/// `count`.
[[nodiscard]] std::vector<int> nearest_worlds(std::int64_t global, int world, int count = 4);

/// For example "global batch 512 = local 16 × accumulation 4 × world 8".
[[nodiscard]] std::string describe(const BatchSizes& sizes);

}  // namespace lockstep
