// Detects a change of memory that only this rank writes and of which there is no second copy to
// compare with: its shards of the one copy per host, and the state of its shards. A window of the
// memory is digested when it has been written and again when it is next read; the window moves with
// each write (moving_window.h). So it finds a fault that recurs at one place. A single write of
// others outside the window is not found: the owner's next write continues from it.
//
// On a GPU the device computes and compares the digests, and the host does not wait for it: a
// change is found in a later step. If the device is more than kLag steps behind the host, the
// oldest comparison is dropped.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "lockstep/flat/late_numbers.h"

namespace lockstep {

class ShardCheck {
 public:
  static constexpr std::size_t kLag = 4;  // steps, on a GPU

  /// The memory, as pieces: dense tensors.
  using Memory = std::vector<at::Tensor>;
  /// Bytes [begin, end) of a piece.
  struct Change {
    std::size_t piece = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  /// This rank has written `memory`: digests the next window.
  void note(const Memory& memory);
  /// This rank is about to read `memory`, which has the pieces of the last note() where they are
  /// now. Returns the part of the window in which something else has written; nullopt if there is
  /// none, if it has been asked since note(), and before the first note(). On a GPU the part may be
  /// of an earlier window.
  [[nodiscard]] std::optional<Change> find_change(const Memory& memory);
  /// The memory may be written by others until the next note().
  void forget() noexcept { noted_.clear(); }

 private:
  struct Noted {
    Change where;
    std::uint64_t digest = 0;
    at::Tensor on_device;  // the digest, if the piece is on a GPU
  };
  // What the device has been asked: the difference of both digests of each part.
  struct Compared {
    std::vector<Change> parts;
    LateNumbers differences;
  };

  [[nodiscard]] std::optional<Change> find_late_change();

  std::int64_t window_ = 0;
  std::vector<Noted> noted_;  // the parts of the window, by piece; empty once they are compared
  std::deque<Compared> late_;
};

}  // namespace lockstep
