// Adds advice about backwards to an error of the group, which knows only calls.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

/// Runs `action`. Appends `advice` to a PeerError about a rank that has left the group or makes
/// different calls, unless it is there already.
template <typename Action>
decltype(auto) with_advice(std::string_view advice, Action action) {
  try {
    return action();
  } catch (const PeerError& error) {
    const std::string_view text = error.what();
    const bool fits =
        text.find("has left group") != text.npos || text.find("make different calls") != text.npos;
    if (!fits || text.find(advice) != text.npos) throw;
    throw PeerError(error.rank(), std::string(text).append(". ").append(advice));
  }
}

}  // namespace lockstep
