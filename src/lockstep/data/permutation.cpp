#include "lockstep/data/permutation.h"

#include <algorithm>
#include <bit>

#include "lockstep/base/assert.h"

namespace lockstep {
namespace {

constexpr std::size_t kLanes = 32;  // fills vector registers, fits the L1 cache
constexpr std::size_t kFew = 2;     // the last values are faster one by one

// Few bits need more rounds to reach every permutation equally often (see permutation_test.cpp).
constexpr int rounds_for(int bits) { return bits <= 6 ? 24 : bits <= 12 ? 12 : 8; }

constexpr std::uint32_t mask_of(int bits) {
  return bits == 0 ? 0 : ~std::uint32_t{0} >> (32 - bits);
}

// Mixes all bits of `half` with the round's key into all bits of the result. The constants are
// those of the finalizer of MurmurHash3; the last shift moves the well-mixed upper bits down.
inline std::uint32_t mix(std::uint32_t half, std::uint32_t before, std::uint32_t between) noexcept {
  std::uint32_t word = (half + before) * 0x85ebca6bu;
  word ^= word >> 13;
  word = (word + between) * 0xc2b2ae35u;
  return word ^ (word >> 16);
}

}  // namespace

Permutation::Permutation(std::int64_t size, RandomKey key, std::uint64_t first,
                         std::uint64_t second) noexcept
    : size_(size) {
  LOCKSTEP_ASSERT(size >= 1, "a permutation has one or more numbers");
  const int bits =
      std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size - 1))));
  left_bits_ = (bits + 1) / 2;
  right_bits_ = bits / 2;
  rounds_ = rounds_for(bits);
  RandomStream stream(key, first, second);
  for (int round = 0; round < rounds_; ++round) {
    const auto word = stream();
    keys_[static_cast<std::size_t>(round)] = {static_cast<std::uint32_t>(word),
                                              static_cast<std::uint32_t>(word >> 32)};
  }
}

template <std::size_t kCount>
void Permutation::pass(std::uint32_t* left, std::uint32_t* right) const noexcept {
  const auto left_mask = mask_of(left_bits_);
  const auto right_mask = mask_of(right_bits_);
  for (int round = 0; round < rounds_; round += 2) {
    const auto even = keys_[static_cast<std::size_t>(round)];
    const auto odd = keys_[static_cast<std::size_t>(round) + 1];
    for (std::size_t i = 0; i < kCount; ++i) {
      left[i] ^= mix(right[i], even.before, even.between) & left_mask;
      right[i] ^= mix(left[i], odd.before, odd.between) & right_mask;
    }
  }
}

std::int64_t Permutation::operator()(std::int64_t position) const noexcept {
  do {
    const auto value = static_cast<std::uint64_t>(position);
    auto left = static_cast<std::uint32_t>(value >> right_bits_);
    auto right = static_cast<std::uint32_t>(value) & mask_of(right_bits_);
    pass<1>(&left, &right);
    position = static_cast<std::int64_t>((std::uint64_t{left} << right_bits_) | right);
  } while (position >= size_);
  return position;
}

void Permutation::fill(std::int64_t first, std::span<std::int64_t> out) const noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + static_cast<std::int64_t>(i);
  apply(out);
}

void Permutation::apply(std::span<std::int64_t> values) const noexcept {
  // The values in the lanes, and the index in `values` of each. A result outside the size stays in
  // its lane for another pass; a finished lane takes the next value.
  std::array<std::uint32_t, kLanes> left{};
  std::array<std::uint32_t, kLanes> right{};
  std::array<std::size_t, kLanes> index{};
  std::size_t used = 0;
  std::size_t next = 0;
  while (next < values.size() || used > kFew) {
    for (; used < kLanes && next < values.size(); ++used, ++next) {
      const auto value = static_cast<std::uint64_t>(values[next]);
      left[used] = static_cast<std::uint32_t>(value >> right_bits_);
      right[used] = static_cast<std::uint32_t>(value) & mask_of(right_bits_);
      index[used] = next;
    }
    // Towards the end fewer lanes are in use.
    if (used > kLanes / 2) {
      pass<kLanes>(left.data(), right.data());
    } else if (used > kLanes / 4) {
      pass<kLanes / 2>(left.data(), right.data());
    } else {
      pass<kLanes / 4>(left.data(), right.data());
    }
    std::size_t kept = 0;
    for (std::size_t lane = 0; lane < used; ++lane) {
      const auto value =
          static_cast<std::int64_t>((std::uint64_t{left[lane]} << right_bits_) | right[lane]);
      values[index[lane]] = value;
      left[kept] = left[lane];
      right[kept] = right[lane];
      index[kept] = index[lane];
      kept += value >= size_ ? 1 : 0;
    }
    used = kept;
  }
  for (std::size_t lane = 0; lane < used; ++lane) {
    auto& value = values[index[lane]];
    value = (*this)(value);
  }
}

}  // namespace lockstep
