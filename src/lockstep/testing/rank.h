// What a test's body sees of the rank it plays, the same whether ranks are threads (threads.h) or
// processes (processes.h), so that a test can be run both ways.
#pragma once

#include <string_view>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

class Board;

class Rank {
 public:
  /// Made by the run functions; `board` outlives it.
  Rank(Board& board, int rank) noexcept : board_(board), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept;
  /// When the run's limit ends.
  [[nodiscard]] Deadline deadline() const noexcept;

  /// Says what this rank is about to do, as in note("waiting in barrier 3"): a report of a hang
  /// shows each rank's last note and its age. Text past 239 bytes is cut. Any thread of the rank
  /// may call it, one at a time.
  void note(std::string_view text);

  /// Waits for every rank, for tests that need an order and must not use what they test for it.
  /// Collective: every rank calls this equally often. Returns when all have.
  /// Throws PeerError naming a rank that has ended or has not come by `deadline`; call it no more
  /// then.
  void barrier(Deadline deadline);

 private:
  Board& board_;
  int rank_;
};

}  // namespace lockstep::testing
