#include "lockstep/testing/rank.h"

#include "lockstep/testing/board_internal.h"

namespace lockstep::testing {

int Rank::size() const noexcept { return board_.size(); }

Deadline Rank::deadline() const noexcept { return board_.deadline(); }

void Rank::note(std::string_view text) { board_.note(rank_, text); }

void Rank::barrier(Deadline deadline) { board_.barrier(rank_, deadline); }

}  // namespace lockstep::testing
