#include "lockstep/tokenizers/bpe_table.h"

#include <bit>

namespace lockstep {
namespace {

std::uint64_t pair_of(Token left, Token right) noexcept {
  return std::uint64_t{left} << 32 | right;
}

}  // namespace

void BpeTable::reserve_merges(std::size_t num_merges) {
  entries_.assign(std::bit_ceil(num_merges * 2 + 2), {});
  mask_ = entries_.size() - 1;
}

std::size_t BpeTable::index_of(std::uint64_t pair) const noexcept {
  auto at = (pair * 0x9e3779b97f4a7c15u >> 32) & mask_;
  while (entries_[at].pair != pair && entries_[at].pair != kNoPair) at = (at + 1) & mask_;
  return at;
}

bool BpeTable::add_merge(Token left, Token right, BpeMerge merge) {
  auto& entry = entries_[index_of(pair_of(left, right))];
  if (entry.pair != kNoPair) return false;
  entry = {pair_of(left, right), merge};
  return true;
}

std::optional<BpeMerge> BpeTable::try_merge(Token left, Token right) const noexcept {
  const auto& entry = entries_[index_of(pair_of(left, right))];
  if (entry.pair == kNoPair) return std::nullopt;
  return entry.merge;
}

}  // namespace lockstep
