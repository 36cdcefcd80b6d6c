// A random permutation of 0 .. size − 1 as a function: sample = permutation(position). There is no
// list: 10^12 samples need as little memory as ten, and any position is computed in constant time.
//
// A Feistel network on ceil(log2 size) bits is a bijection for any round function. A result outside
// the size passes through the network again until it is inside (cycle walking); the function stays
// a bijection, and the average is less than two passes. It is not a cipher.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/random.h"

namespace lockstep {

class Permutation {
 public:
  /// The permutation of `size` numbers for this key and counter (`first`, `second`). It is the same
  /// on every machine and in every version: checkpoints depend on it. `size` is at least 1.
  Permutation(std::int64_t size, RandomKey key, std::uint64_t first, std::uint64_t second) noexcept;

  /// `position` is in [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const noexcept;
  /// out[i] = permutation(first + i). Vectorized: faster than one call per value.
  void fill(std::int64_t first, std::span<std::int64_t> out) const noexcept;
  /// values[i] = permutation(values[i]).
  void apply(std::span<std::int64_t> values) const noexcept;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }

 private:
  static constexpr int kMaxRounds = 24;

  struct RoundKey {
    std::uint32_t before = 0;
    std::uint32_t between = 0;
  };

  /// All rounds for `kCount` values.
  template <std::size_t kCount>
  void pass(std::uint32_t* left, std::uint32_t* right) const noexcept;

  std::int64_t size_;
  int left_bits_;   // the upper half of the bits; one more than the lower if their number is odd
  int right_bits_;  // the lower half; 0 for sizes up to 2
  int rounds_;
  std::array<RoundKey, kMaxRounds> keys_{};
};

}  // namespace lockstep
