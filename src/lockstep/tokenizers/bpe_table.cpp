#include "lockstep/tokenizers/bpe_table.h"

#include <bit>

namespace lockstep {
namespace {

std::uint64_t pair_of(Token left, Token right) noexcept {
  return std::uint64_t{left} << 32 | right;
}

}  // namespace

void BpeTable::reserve_merges(std::size_t num_merges) {
  slots_.assign(std::bit_ceil(num_merges * 2 + 2), {});
  mask_ = slots_.size() - 1;
}

std::size_t BpeTable::slot_of(std::uint64_t pair) const noexcept {
  auto at = (pair * 0x9e3779b97f4a7c15u >> 32) & mask_;
  while (slots_[at].pair != pair && slots_[at].pair != kNoPair) at = (at + 1) & mask_;
  return at;
}

bool BpeTable::add_merge(Token left, Token right, BpeMerge merge) {
  auto& slot = slots_[slot_of(pair_of(left, right))];
  if (slot.pair != kNoPair) return false;
  slot = {pair_of(left, right), merge};
  return true;
}

std::optional<BpeMerge> BpeTable::try_merge(Token left, Token right) const noexcept {
  const auto& slot = slots_[slot_of(pair_of(left, right))];
  if (slot.pair == kNoPair) return std::nullopt;
  return slot.merge;
}

}  // namespace lockstep
