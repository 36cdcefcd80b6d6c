// What the user may have meant, added to a message of the group, which knows calls but no
// backwards.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

/// Runs `action`. A PeerError about a rank that has left the group or makes other calls gets
/// `advice` added, once.
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
