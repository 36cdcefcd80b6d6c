#include "lockstep/kernels/convert_pass.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace lockstep {
namespace {

constexpr std::size_t kBlock = 2048;  // values between two tests for non-finite ones

template <typename Stored>
[[gnu::always_inline]] inline void narrow_each(const float* __restrict from, Stored* __restrict to,
                                               std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) to[i] = narrowed<Stored>(from[i]);
}

// Rounds a block to bfloat16 as if every value were finite. Returns whether all were. The lower
// half of a float decides whether its upper half, the result, is incremented. Registers of 16 bytes
// separate the halves in one instruction each, and then hold twice as many values per instruction
// as the definition does.
[[gnu::always_inline, maybe_unused]] inline bool round_block(const float* from,
                                                             BFloat16* to) noexcept {
  using Halves [[gnu::vector_size(16)]] = std::uint16_t;
  constexpr std::size_t kLanes = 8;
  constexpr std::size_t kChains = 4;
  const auto* const bytes = reinterpret_cast<const std::byte*>(from);
  Halves largest[kChains] = {};
  for (std::size_t i = 0; i < kBlock; i += kChains * kLanes) {
    for (std::size_t chain = 0; chain < kChains; ++chain) {
      const auto at = i + chain * kLanes;
      Halves first;
      Halves second;
      std::memcpy(&first, bytes + at * sizeof(float), sizeof(first));
      std::memcpy(&second, bytes + at * sizeof(float) + sizeof(first), sizeof(second));
      const Halves lower = __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14);
      const Halves upper = __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15);
      // Exactly one half rounds up if the result is odd. A comparison gives -1.
      const Halves tie = lower | (upper & 1);
      const Halves rounded = upper - std::bit_cast<Halves>(tie > std::uint16_t{0x8000});
      std::memcpy(to + at, &rounded, sizeof(rounded));
      const Halves magnitude = upper + upper;
      largest[chain] = largest[chain] > magnitude ? largest[chain] : magnitude;
    }
  }
  for (std::size_t chain = 1; chain < kChains; ++chain) {
    largest[0] = largest[0] > largest[chain] ? largest[0] : largest[chain];
  }
  std::uint16_t all = 0;
  for (std::size_t i = 0; i < kLanes; ++i) all = largest[0][i] > all ? largest[0][i] : all;
  return all < 0xFF00U;
}

}  // namespace

template <InstructionSet Set, typename Stored>
void ConvertLoops<Set, Stored>::narrow(const float* from, Stored* to, std::size_t count) noexcept {
  std::size_t done = 0;
  if constexpr (std::is_same_v<Stored, BFloat16> && kRegisterBytes == 16) {
    for (; done + kBlock <= count; done += kBlock) {
      if (!round_block(from + done, to + done)) narrow_each(from + done, to + done, kBlock);
    }
  }
  narrow_each(from + done, to + done, count - done);
}

template <InstructionSet Set, typename Stored>
void ConvertLoops<Set, Stored>::widen(const Stored* from, float* to, std::size_t count) noexcept {
  float* __restrict out = to;
  for (std::size_t i = 0; i < count; ++i) out[i] = widened(from[i]);
}

template struct ConvertLoops<kCompiledFor, Float16>;
template struct ConvertLoops<kCompiledFor, BFloat16>;

}  // namespace lockstep
