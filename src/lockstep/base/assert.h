// LOCKSTEP_ASSERT(condition, "why it must hold") checks an invariant of lockstep itself. It is
// active in release builds too: a run that continued after a broken invariant could corrupt a model
// without a message. Errors that a user or a machine can cause are exceptions instead (error.h).
#pragma once

namespace lockstep {

/// Prints the broken invariant to standard error and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* reason, const char* file,
                                   int line) noexcept;

}  // namespace lockstep

#define LOCKSTEP_ASSERT(condition, reason) \
  ((condition) ? static_cast<void>(0)      \
               : ::lockstep::assertion_failed(#condition, reason, __FILE__, __LINE__))
