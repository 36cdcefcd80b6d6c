// A crash record: the process that crashes writes it while it dies, and another process (the
// launcher's agent) reads it and turns the addresses into names. Symbols are not looked up here: a
// crashing process can rely on little more than write(2).
//
// The record, format 1, consists of lines that each start with one word:
//
//   lockstep-crash 1
//   signal <number> <name>       for example "signal 11 SIGSEGV"
//   code <si_code>               above 0: the kernel raised the signal because of an instruction
//   address <hex>                the address that the instruction accessed; only if code > 0
//   sender <pid>                 the process that sent the signal, often this one (abort);
//                                only if code <= 0
//   pid <number>
//   thread <id> <name>           the name is the rest of the line; control characters appear as ?
//   frame <hex>                  innermost first, at most 128. The first is the instruction that
//                                was running, the others are return addresses: look up the byte
//                                before them.
//   nested <number> <name>       only if unwinding crashed too: frames are missing, the rest of
//                                the record is complete
//   mapping <line>               the executable lines of /proc/self/maps, unchanged
//   no-mappings <errno>          in place of the mappings, if that file is not readable
//   end                          a record without this line is incomplete
//
// To name a frame: find its mapping "<start>-<end> r-xp <offset> <device> <inode> <path>". Then
// frame - start + offset is an offset in the file <path>, and the program headers of that file give
// the virtual address of the offset.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <span>

namespace lockstep {

/// A separate stack for signal handlers of the calling thread, so that a thread whose stack has
/// overflowed can still write a record. The kernel has one such stack per thread, and a new thread
/// starts without: every thread that lockstep starts creates one of these first. Threads without
/// one (those of LibTorch and of the user) are recorded like any other, except for a stack
/// overflow, which ends the process with SIGSEGV and no record. lockstep does not intercept
/// pthread_create to give them one.
class AlternateSignalStack {
 public:
  /// Throws SystemError when the memory is not available.
  AlternateSignalStack();
  AlternateSignalStack(const AlternateSignalStack&) = delete;
  AlternateSignalStack& operator=(const AlternateSignalStack&) = delete;
  /// Restores the thread's previous signal stack. On any thread but the one that created this, the
  /// memory is leaked instead: the creating thread may still use it.
  ~AlternateSignalStack();

 private:
  // The lowest page is inaccessible, so that an overflow of this stack faults too.
  std::span<std::byte> memory_;
  stack_t previous_{};
  pid_t thread_;
};

struct CrashHandlerOptions {
  // A record that is not written by then (a full pipe, a held lock) is abandoned.
  std::chrono::seconds limit{10};
};

/// While a CrashHandler lives, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS and SIGTRAP in any
/// thread write a record and then end the process by the same signal, so that exit status and core
/// dump are those of the crash. The first thread that crashes writes the record; other threads that
/// crash wait until the process ends. A thread that blocks these signals gets no record: the kernel
/// ends the process without calling the handler. While a record is written, the handler uses
/// SIGALRM and alarm().
class CrashHandler {
 public:
  /// Writes records to `descriptor`, which the caller owns and keeps open while this lives.
  /// The calling thread gets an AlternateSignalStack, so destroy this on the same thread.
  /// Throws UsageError when the descriptor is not open, the limit is below one second or above one
  /// hour, or the process already has a CrashHandler; SystemError when a system call fails.
  explicit CrashHandler(int descriptor, const CrashHandlerOptions& options = {});
  CrashHandler(const CrashHandler&) = delete;
  CrashHandler& operator=(const CrashHandler&) = delete;
  /// Restores the previous handlers, except for signals whose handler was replaced since.
  ~CrashHandler();

  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};

 private:
  AlternateSignalStack stack_;
  std::array<struct sigaction, kSignals.size()> previous_{};  // in the order of kSignals
};

}  // namespace lockstep
