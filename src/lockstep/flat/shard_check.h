// Detects a change of memory that only this rank writes and of which there is no second copy to
// compare with: its shards of the one copy per host, and the state of its shards. A window of the
// memory is digested when it has been written and again when it is next read; the window moves with
// each write and has covered everything after kWindows of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

class ShardCheck {
 public:
  static constexpr std::size_t kWindows = 64;
  static constexpr std::size_t kLeastBytes = 16 << 10;  // per window

  /// The memory, as pieces.
  using Memory = std::vector<std::span<const std::byte>>;
  /// Bytes [begin, end) of a piece.
  struct Change {
    std::size_t piece = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// This rank has written `memory`: digests the next window.
  void note(const Memory& memory);
  /// This rank is about to read `memory`, which has the pieces of the last note() where they are
  /// now. Returns the part of the window in which something else has written; nullopt if there is
  /// none, if it has been asked since note(), and before the first note().
  [[nodiscard]] std::optional<Change> find_change(const Memory& memory);
  /// The memory may be written by others until the next note().
  void forget() noexcept { noted_.clear(); }

 private:
  struct Noted {
    Change where;
    std::uint64_t digest = 0;
  };

  std::size_t window_ = 0;
  std::vector<Noted> noted_;  // the parts of the window, by piece; empty once they are compared
};

}  // namespace lockstep
