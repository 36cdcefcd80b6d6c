// LOCKSTEP_ASSERT(condition, "why it must hold"): an invariant of ours. It stays on in release
// builds: going on after one is broken could corrupt a model in silence. Errors that a user or a
// machine can cause are exceptions instead (error.h).
#pragma once

namespace lockstep {

/// Prints the broken invariant to standard error and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* reason, const char* file,
                                   int line) noexcept;

}  // namespace lockstep

#define LOCKSTEP_ASSERT(condition, reason) \
  ((condition) ? static_cast<void>(0)      \
               : ::lockstep::assertion_failed(#condition, reason, __FILE__, __LINE__))
