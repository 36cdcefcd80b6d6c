// What Ddp says along with each bucket of gradients: CallFlags by name. The samples of a rank are
// the sum, the digest of its replica must be equal, and a rank that sits out is absent.
#pragma once

#include <cstdint>

#include "lockstep/base/call_flags.h"

namespace lockstep {

struct StepFlags {
  static constexpr std::uint32_t kNonFinite = 1;  // a gradient of this rank has inf or NaN
  static constexpr std::uint32_t kUnused = 2;     // a parameter that trains got no gradient here
  static constexpr std::uint32_t kFailed = 4;     // its backward failed: all ranks drop gradients

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
