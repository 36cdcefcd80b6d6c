// The elements that ranks own, in rounds, for transports whose buffers hold a part of a call.
//
// The elements of a rank are those that it owns, in ascending order. Round k of a call covers the
// k-th stretch of every rank's elements: all ranks work in every round in which they still have
// elements, wherever these are in the span.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/fabric/call.h"
#include "lockstep/gpu/pieces_internal.h"

namespace lockstep {

/// Consecutive elements of one owner in one round. All in bytes.
struct OwnedPart {
  std::size_t at = 0;        // from the begin of the call's span
  std::size_t position = 0;  // from the begin of the owner's elements in the round
  std::size_t bytes = 0;

  friend bool operator==(const OwnedPart&, const OwnedPart&) = default;
};

class OwnedRounds {
 public:
  /// For a call with owners, which outlive this object. A buffer of `buffer_bytes` holds one round:
  /// of a call that reduces, the elements of every owner; otherwise those of one. At least
  /// kPieceLine bytes per owner. Without a buffer, there is one round.
  OwnedRounds(const Call& call, std::optional<std::size_t> buffer_bytes)
      : owners_(*call.owners), element_(bytes_of(call.dtype)) {
    std::size_t most = 0;  // elements
    for (int owner = 0; owner < owners_.num_ranks(); ++owner) {
      most = std::max(most, static_cast<std::size_t>(owners_.count_of(owner)));
    }
    const auto sharing = reduces(call.kind) ? static_cast<std::size_t>(owners_.num_ranks()) : 1U;
    length_ = !buffer_bytes
                  ? most * element_
                  : std::max(kPieceLine, *buffer_bytes / sharing / kPieceLine * kPieceLine);
    count_ = most == 0 ? 0 : (most * element_ + length_ - 1) / length_;
  }

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  /// The most bytes of one owner in one round.
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  /// The elements of `owner` in a round, ascending; none of the parts is empty.
  [[nodiscard]] std::vector<OwnedPart> of(int owner, std::size_t round) const {
    std::vector<OwnedPart> parts;
    const auto first = round * length_;
    std::size_t before = 0;  // bytes of the owner in earlier ranges
    for (const auto& range : owners_.of(owner)) {
      const auto bytes = static_cast<std::size_t>(range.count) * element_;
      const auto begin = std::max(before, first);
      const auto end = std::min(before + bytes, first + length_);
      if (begin < end) {
        parts.push_back({static_cast<std::size_t>(range.begin) * element_ + begin - before,
                         begin - first, end - begin});
      }
      before += bytes;
      if (before >= first + length_) break;
    }
    return parts;
  }

 private:
  const Owners& owners_;
  std::size_t element_;
  std::size_t length_ = 0;  // bytes
  std::size_t count_ = 0;
};

}  // namespace lockstep
