// The common part of running ranks as threads and as processes: calling the body, and describing
// the state of a rank.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/testing/board_internal.h"
#include "lockstep/testing/rank.h"

namespace lockstep::testing {

/// Enters the board as `rank` and calls `body`. Returns a description of the exception that the
/// body threw; nullopt when it returned. The caller leaves the board.
[[nodiscard]] std::optional<std::string> failure_of_body(Board& board, int rank,
                                                         const std::function<void(Rank&)>& body);

/// For example "running; noted "waiting in barrier 3" 1.204 s ago".
[[nodiscard]] std::string describe_rank(const Board& board, int rank);

/// Each line of `text` with `prefix` in front and a newline at the end.
[[nodiscard]] std::string indented(std::string_view text, std::string_view prefix);

}  // namespace lockstep::testing
