// Writes the parts of a crash record (crash_handler.h defines the format), in the order of the
// functions below. All of this runs inside a signal handler of a process that is about to end: it
// calls only what signal-safety(7) allows, with one exception, backtrace() in write_crash_frames,
// which the caller must have loaded before.
#pragma once

#include <csignal>

namespace lockstep {

/// Writes the lines from "lockstep-crash" to "thread".
void write_crash_head(int descriptor, int signal, const siginfo_t& info);

/// Writes the "frame" lines. `context` is the third argument of the signal handler.
void write_crash_frames(int descriptor, const void* context);

/// Writes "nested": `signal` was raised while the frames were written.
void write_crash_nested(int descriptor, int signal);

/// Writes the lines from "mapping" to "end".
void write_crash_end(int descriptor);

}  // namespace lockstep
