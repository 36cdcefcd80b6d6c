// Text that another process of the job wrote. It may be of another version of lockstep, so that
// what does not parse is the user's to mend, not a broken invariant of ours.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

/// What `read` returns. Throws UsageError, naming `what`, in the place of an exception of the
/// parser.
template <typename Read>
auto read_peer_text(std::string_view what, const Read& read) {
  try {
    return read();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw UsageError(std::string(what) + " cannot be read (" + error.what() +
                     "): start all processes of the job with the same version of lockstep");
  }
}

}  // namespace lockstep
