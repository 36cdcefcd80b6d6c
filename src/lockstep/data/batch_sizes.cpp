#include "lockstep/data/batch_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void expect_positive(std::string_view what, std::optional<std::int64_t> value) {
  if (value && *value < 1) {
    throw UsageError(fmt::format("{} {} is invalid; it must be at least 1", what, *value));
  }
}

// "508 or 516": the nearest multiples of `unit` below and above `value`.
std::string nearest_multiples(std::int64_t value, std::int64_t unit) {
  const auto below = value / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

std::int64_t largest_divisor_up_to(std::int64_t value, std::int64_t limit) {
  auto divisor = std::min(value, limit);
  while (value % divisor != 0) --divisor;
  return divisor;
}

void expect_splits(std::int64_t global, int world) {
  if (global % world == 0) return;
  throw UsageError(fmt::format(
      "a global batch of {} is not divisible by {} ranks; use a global batch of {}, or one of "
      "these numbers of ranks: {}",
      global, world, nearest_multiples(global, world),
      fmt::join(nearest_worlds(global, world), ", ")));
}

}  // namespace

BatchSizes derive_batch_sizes(const BatchRequest& request) {
  expect_positive("a world of", request.world);
  expect_positive("a local batch of", request.local);
  expect_positive("a global batch of", request.global);
  expect_positive("accumulation", request.accumulation);
  if (!request.global) {
    if (!request.local) {
      throw UsageError("no batch size is given; give a local or a global batch size");
    }
    return {*request.local, request.accumulation.value_or(1), request.world};
  }
  const auto global = *request.global;
  expect_splits(global, request.world);
  const auto shard = global / request.world;
  if (!request.local) {
    const auto accumulation = request.accumulation.value_or(1);
    if (shard % accumulation != 0) {
      throw UsageError(fmt::format(
          "each of {} ranks takes {} samples of the global batch of {}, which is not divisible by "
          "{} micro-batches; use accumulation {}, or a global batch of {}",
          request.world, shard, global, accumulation, largest_divisor_up_to(shard, accumulation),
          nearest_multiples(global, accumulation * request.world)));
    }
    return {shard / accumulation, accumulation, request.world};
  }
  const auto local = *request.local;
  if (shard % local != 0) {
    throw UsageError(fmt::format(
        "each of {} ranks takes {} samples of the global batch of {}, which is not divisible by a "
        "local batch of {}; use a local batch of {}, or a global batch of {}",
        request.world, shard, global, local, largest_divisor_up_to(shard, local),
        nearest_multiples(global, local * request.world)));
  }
  const BatchSizes sizes{local, shard / local, request.world};
  if (request.accumulation && *request.accumulation != sizes.accumulation) {
    throw UsageError(fmt::format(
        "local {} × accumulation {} × world {} is {}, but the global batch given is {}; use "
        "accumulation {}, or leave one of the three out",
        local, *request.accumulation, request.world, local * *request.accumulation * request.world,
        global, sizes.accumulation));
  }
  return sizes;
}

BatchSizes change_world(const BatchSizes& sizes, int world, Keep keep) {
  expect_positive("a world of", world);
  if (keep == Keep::local) return {sizes.local, sizes.accumulation, world};
  expect_splits(sizes.global(), world);
  const auto shard = sizes.global() / world;
  // Not larger than before: only the old local batch is known to fit into memory.
  const auto local = largest_divisor_up_to(shard, sizes.local);
  return {local, shard / local, world};
}

std::vector<int> nearest_worlds(std::int64_t global, int world, int count) {
  std::vector<int> found;
  for (std::int64_t distance = 0; distance < std::max<std::int64_t>(world, global); ++distance) {
    for (const auto other : {world - distance, world + distance}) {
      if (static_cast<int>(found.size()) == count) return found;
      if (other >= 1 && other <= global && global % other == 0 &&
          std::find(found.begin(), found.end(), other) == found.end()) {
        found.push_back(static_cast<int>(other));
      }
    }
  }
  return found;
}

std::string describe(const BatchSizes& sizes) {
  return fmt::format("global batch {} = local {} × accumulation {} × world {}", sizes.global(),
                     sizes.local, sizes.accumulation, sizes.world);
}

}  // namespace lockstep
