// A 64-bit digest of memory, to compare replicas and verify files. Each 8-byte word is mixed with
// its position, and the results are summed: chunks may be digested in any order, by any number of
// threads or ranks or on a GPU, and their sums added. A change of one word always changes the
// digest (the mix is a bijection); any other change remains undetected with probability 2^-64. The
// digest is not cryptographic: it does not protect against deliberate collisions.
//
// Definition, for bit-identical implementations elsewhere: the word at byte position p (a multiple
// of 8), of which n of 8 bytes are present, zero-padded, little-endian, contributes
//   mix(word ^ ((p + 9 - n) * 0x9E3779B97F4A7C15)),
// where mix is the finalizer of splitmix64. All sums are modulo 2^64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/kernels/dispatch.h"

namespace lockstep {

class Digest {
 public:
  /// Adds the chunk at byte `position` of the whole. `position` is a multiple of 8, and so is the
  /// length of every chunk but the last.
  void add(std::uint64_t position, std::span<const std::byte> chunk,
           InstructionSet set = best_instruction_set()) noexcept;

  /// Adds the digest of other chunks of the same whole.
  Digest& operator+=(Digest other) noexcept {
    sum_ += other.sum_;
    return *this;
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return sum_; }
  friend bool operator==(Digest, Digest) noexcept = default;

 private:
  std::uint64_t sum_ = 0;
};

template <InstructionSet>
struct DigestLoops {
  /// The sum of the contributions of whole words. The first is at byte `position`.
  [[nodiscard]] static std::uint64_t sum(std::uint64_t position,
                                         std::span<const std::byte> words) noexcept;
};

/// The digest of one whole span.
[[nodiscard]] std::uint64_t digest(std::span<const std::byte> whole) noexcept;

}  // namespace lockstep
