// Exchanges a value among the ranks of a group, through CPU memory.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/fabric/group.h"

namespace lockstep {

/// Returns the values of all ranks, by rank. Collective. Throws PeerError.
template <typename T>
std::vector<T> gather(Group& group, const T& own, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group.wait(*group.start({.kind = Collective::all_gather,
                           .count = sizeof(T),
                           .name = name,
                           .input = std::as_bytes(std::span(&own, 1)),
                           .output = std::as_writable_bytes(std::span(all))},
                          nullptr));
  return all;
}

}  // namespace lockstep
