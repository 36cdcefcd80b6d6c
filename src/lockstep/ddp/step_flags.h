// The call flags that Ddp sends with each bucket of gradients: `sum` is the rank's weight in
// samples, `equal` the digest of its replica, `absent` a rank that sits out, `any` the bits below.
#pragma once

#include <cstdint>

#include "lockstep/base/call_flags.h"

namespace lockstep {

struct StepFlags {
  static constexpr std::uint32_t kNonFinite = 1;  // a gradient on this rank has inf or NaN
  static constexpr std::uint32_t kUnused = 2;  // a trainable parameter got no gradient on this rank
  static constexpr std::uint32_t kFailed = 4;  // backward failed: all ranks discard gradients
  static constexpr std::uint32_t kNoDigest = 8;  // `equal` says nothing: the device has not
                                                 // computed this rank's digest yet

  [[nodiscard]] static CallFlags of(std::int64_t samples, std::uint64_t replica_digest,
                                    bool sits_out) noexcept {
    return {.sum = samples, .equal = replica_digest, .absent = sits_out};
  }
};

[[nodiscard]] inline bool has(const CallFlags& flags, std::uint32_t bit) noexcept {
  return (flags.any & bit) != 0;
}
[[nodiscard]] inline bool has(const GroupFlags& flags, std::uint32_t bit) noexcept {
  return (flags.any & bit) != 0;
}

}  // namespace lockstep
