// Folds equal lines that several ranks print at about the same time into one. A line waits for
// equal lines of other ranks for a short window; the lines of one rank keep their order.
//
// Words: a group is a line and the ranks that have printed it. Groups are released in the order of
// their creation: the first one when it contains every rank, or when its window has passed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/launch/rank_log.h"

namespace lockstep {

struct OutputLine {
  int rank = 0;
  OutputStream stream = OutputStream::standard_output;
  std::string text = {};
};

struct FoldedLine {
  std::vector<int> ranks = {};  // in the order of arrival
  OutputStream stream = OutputStream::standard_output;
  std::string text = {};
};

class LineFolder {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostGroups = 512;  // above, the first one is released early

  /// `num_ranks` is the number of ranks that print; with one rank, no line waits.
  LineFolder(int num_ranks, std::chrono::milliseconds window)
      : num_ranks_(num_ranks), window_(window) {}

  void feed(OutputLine line, Time now);
  /// Returns the groups that are complete or whose window has passed.
  [[nodiscard]] std::vector<FoldedLine> release_ready(Time now);
  /// Returns all groups.
  [[nodiscard]] std::vector<FoldedLine> release_all();
  /// The latest time at which release_ready() returns a group; nullopt when no line waits.
  [[nodiscard]] std::optional<Time> next_ready() const;

 private:
  struct Group {
    FoldedLine line;
    std::size_t hash = 0;
    Time begun = {};
  };

  [[nodiscard]] bool is_ready(const Group& group, Time now) const;
  FoldedLine release_first();

  int num_ranks_;
  std::chrono::milliseconds window_;
  std::deque<Group> groups_;
  std::uint64_t first_ = 0;                      // number of groups_.front()
  std::unordered_map<int, std::uint64_t> next_;  // per rank: the first group it may still join
};

}  // namespace lockstep
