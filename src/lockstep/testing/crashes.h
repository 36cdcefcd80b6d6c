// For functions of tests that crash on purpose.
#pragma once

/// Stands before such a function: it keeps its name in the debug information, is in nobody's tail
/// call, and is left alone by the sanitizers, which would end the process in their own way before
/// the instruction faults.
#define LOCKSTEP_CRASHES __attribute__((noinline, no_sanitize("address", "undefined", "thread")))
