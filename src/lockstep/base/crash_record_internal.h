// The parts of a crash record (crash_handler.h has the format) in the order they are written. All
// of this runs inside a signal handler of a process that is about to die: only what
// signal-safety(7) allows is called, with one exception, backtrace() in write_crash_frames, for
// which the caller prepares.
#pragma once

#include <csignal>

namespace lockstep {

/// From "lockstep-crash" to "thread".
void write_crash_head(int descriptor, int signal, const siginfo_t& info);

/// The "frame" lines. `context` is what the kernel handed to the signal handler.
void write_crash_frames(int descriptor, const void* context);

/// "nested": `signal` came while the frames were written.
void write_crash_nested(int descriptor, int signal);

/// From "mapping" to "end".
void write_crash_end(int descriptor);

}  // namespace lockstep
