// For functions of tests that crash on purpose.
#pragma once

/// An attribute for such a function: the function is not inlined, so its name is in the stack, and
/// the sanitizers do not instrument it; they would end the process before the instruction faults.
#define LOCKSTEP_CRASHES __attribute__((noinline, no_sanitize("address", "undefined", "thread")))
