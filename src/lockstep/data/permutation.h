// A shuffle of 0 .. size − 1 as a function: sample = permutation(position), computed where it is
// asked for. No list, so 10^12 samples cost as little as ten, and any place can be entered at once.
//
// A Feistel network on ceil(log2 size) bits is a bijection whatever its round function; values that
// fall outside the size are sent through again until they fall inside (cycle walking), which keeps
// it one and takes less than two passes on average. It is made for shuffling, not for secrecy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/random.h"

namespace lockstep {

class Permutation {
 public:
  /// The permutation of `size` numbers that belongs to this key and counter. The same on every
  /// machine and in every version: checkpoints depend on it. `size` is at least 1.
  Permutation(std::int64_t size, RandomKey key, std::uint64_t first, std::uint64_t second) noexcept;

  /// `position` is in [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const noexcept;
  /// out[i] = permutation(first + i), several at a time: quicker than one by one.
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

  /// All rounds for `kCount` values at a time.
  template <std::size_t kCount>
  void pass(std::uint32_t* left, std::uint32_t* right) const noexcept;

  std::int64_t size_;
  int left_bits_;   // the upper half of the bits, one more where their number is odd
  int right_bits_;  // the lower half; 0 for sizes up to 2
  int rounds_;
  std::array<RoundKey, kMaxRounds> keys_{};
};

}  // namespace lockstep
