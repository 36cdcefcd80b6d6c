#include "lockstep/base/random.h"

#include "lockstep/base/assert.h"

namespace lockstep {
namespace {

__extension__ using Uint128 = unsigned __int128;

struct Product {
  std::uint64_t high;
  std::uint64_t low;
};

Product multiply(std::uint64_t a, std::uint64_t b) noexcept {
  const auto product = static_cast<Uint128>(a) * b;
  return {static_cast<std::uint64_t>(product >> 64), static_cast<std::uint64_t>(product)};
}

}  // namespace

std::array<std::uint64_t, 4> philox(std::array<std::uint64_t, 4> counter,
                                    std::array<std::uint64_t, 2> key) noexcept {
  // Multipliers and Weyl constants as published.
  constexpr std::uint64_t multiplier0 = 0xD2E7470EE14C6C93u;
  constexpr std::uint64_t multiplier1 = 0xCA5A826395121157u;
  constexpr std::uint64_t weyl0 = 0x9E3779B97F4A7C15u;
  constexpr std::uint64_t weyl1 = 0xBB67AE8584CAA73Bu;
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round) {
    const auto p0 = multiply(multiplier0, counter[0]);
    const auto p1 = multiply(multiplier1, counter[2]);
    counter = {p1.high ^ counter[1] ^ key[0], p1.low, p0.high ^ counter[3] ^ key[1], p0.low};
    key = {key[0] + weyl0, key[1] + weyl1};
  }
  return counter;
}

std::uint64_t RandomStream::operator()() noexcept {
  if (used_ == block_.size()) {
    block_ = philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

double RandomStream::uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

std::uint64_t RandomStream::below(std::uint64_t bound) noexcept {
  LOCKSTEP_ASSERT(bound > 0, "below() needs a bound of at least 1");
  // Lemire 2019: the high half of random × bound is uniform if draws with a low half that would
  // favor some results are rejected.
  auto product = multiply((*this)(), bound);
  if (product.low < bound) {
    const std::uint64_t biased = (0 - bound) % bound;
    while (product.low < biased) product = multiply((*this)(), bound);
  }
  return product.high;
}

}  // namespace lockstep
