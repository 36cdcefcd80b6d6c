#include "lockstep/base/owners.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The finalizer of splitmix64.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

Owners::Owners(int num_ranks, std::span<const OwnedPiece> pieces) {
  if (num_ranks < 1) {
    throw UsageError(fmt::format("owners among {} ranks: at least one is required", num_ranks));
  }
  of_.resize(static_cast<std::size_t>(num_ranks));
  counts_.resize(of_.size());
  for (const auto& piece : pieces) {
    if (piece.count < 0 || piece.owner < 0 || piece.owner >= num_ranks) {
      throw UsageError(fmt::format(
          "a piece of {} elements of rank {}: expected 0 or more, and a rank from 0 to {}",
          piece.count, piece.owner, num_ranks - 1));
    }
    if (piece.count == 0) continue;
    auto& own = of_[static_cast<std::size_t>(piece.owner)];
    if (!own.empty() && own.back().begin + own.back().count == count_) {
      own.back().count += piece.count;
    } else {
      own.push_back({count_, piece.count});
    }
    counts_[static_cast<std::size_t>(piece.owner)] += piece.count;
    count_ += piece.count;
  }
  digest_ = mix(static_cast<std::uint64_t>(num_ranks));
  for (const auto& own : of_) {
    digest_ = mix(digest_ + own.size());
    for (const auto& range : own) {
      digest_ = mix(digest_ ^ static_cast<std::uint64_t>(range.begin));
      digest_ = mix(digest_ + static_cast<std::uint64_t>(range.count));
    }
  }
  if (digest_ == 0) digest_ = 1;
}

}  // namespace lockstep
