// The part of memory that a check digests in a step, instead of all of it. It moves with each step,
// and has covered everything after kMovingWindows of them.
//
// The number of windows is odd. So each of two memories that are used in turn, such as the two
// copies per host, also meets all of them: after 2 * kMovingWindows steps.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

inline constexpr std::int64_t kMovingWindows = 63;
inline constexpr std::int64_t kLeastWindowBytes = 16 << 10;

/// The bytes [begin, end).
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The window of `bytes` of memory in step `number`; the last one may be empty. Windows begin at
/// multiples of 64 bytes.
[[nodiscard]] constexpr ByteRange moving_window(std::int64_t bytes, std::int64_t number) noexcept {
  constexpr std::int64_t kLine = 64;
  const auto part = (bytes + kMovingWindows - 1) / kMovingWindows;
  const auto length = std::max(kLeastWindowBytes, (part + kLine - 1) / kLine * kLine);
  const auto num_windows = ((bytes + length - 1) / length) | 1;
  const auto begin = number % num_windows * length;
  return {std::min(begin, bytes), std::min(begin + length, bytes)};
}

}  // namespace lockstep
