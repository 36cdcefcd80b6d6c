// Parsing of text that another process of the job wrote. That process may run another version of
// lockstep, so text that does not parse is a UsageError, not a broken invariant.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

/// Returns the result of `read`. Replaces an exception of the parser by a UsageError that names
/// `what`.
template <typename Read>
auto read_peer_text(std::string_view what, const Read& read) {
  try {
    return read();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw UsageError(std::string(what) + " has an invalid format (" + error.what() +
                     "): start all processes of the job with the same version of lockstep");
  }
}

}  // namespace lockstep
