// A record of how this process crashed, written by the process itself while it dies and read by
// another one (the launcher's agent), which turns the addresses into names. Nothing is symbolised
// here: a crashing process can be trusted with little more than write(2).
//
// The record, format 1, is made of lines that each start with one word:
//
//   lockstep-crash 1
//   signal <number> <name>       for example "signal 11 SIGSEGV"
//   code <si_code>               above 0: the kernel raised it because of an instruction
//   address <hex>                the address the instruction failed on; only when code is above 0
//   sender <pid>                 who sent it, often this process itself (abort); only when code is
//   0 or below pid <number> thread <id> <name>           the name is the rest of the line; bytes
//   below the space are shown as ? frame <hex>                  innermost first, at most 128. The
//   first is the instruction that was running,
//                                the others are return addresses: look up the byte before them.
//   nested <number> <name>       only when unwinding crashed too: frames are missing, the rest is
//   whole mapping <line>               the executable lines of /proc/self/maps, word for word
//   no-mappings <errno>          instead of these, when that file cannot be read
//   end                          without it the record was cut short
//
// To name a frame: find its mapping "<start>-<end> r-xp <offset> <device> <inode> <path>"; frame -
// start + offset is a place in the file <path>, and its program headers say which virtual address
// lies there.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <span>

namespace lockstep {

/// Room for a signal handler apart from the calling thread's stack, so that a thread which has used
/// up its stack can still report. The kernel keeps one for each thread, and a new thread starts
/// without: a thread made by lockstep holds one of these from its first line on. Threads without
/// one (LibTorch's, the user's) are reported like any other, except for an overflow of their stack,
/// which ends the process with SIGSEGV and no record. Giving them one would mean to get between
/// them and pthread_create.
class AlternateSignalStack {
 public:
  /// Throws SystemError when the memory is not to be had.
  AlternateSignalStack();
  AlternateSignalStack(const AlternateSignalStack&) = delete;
  AlternateSignalStack& operator=(const AlternateSignalStack&) = delete;
  /// Gives the thread back what it had. On any other thread than the one that made it, it leaves
  /// the memory where it is: that thread may still use it.
  ~AlternateSignalStack();

 private:
  std::span<std::byte>
      memory_;  // the lowest page is closed, so that using up this stack faults as well
  stack_t previous_{};
  pid_t thread_;
};

struct CrashHandlerOptions {
  std::chrono::seconds limit{
      10};  // a report not written by then (a full pipe, a held lock) is given up
};

/// From construction to destruction, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS and SIGTRAP
/// in any thread write a record and then end the process by the same signal, so that the exit
/// status and the core dump are the true ones. The first thread to crash writes; others that crash
/// wait for the end with it. A thread that blocks these signals cannot be reported: the kernel ends
/// the process without asking. While a crash is reported, SIGALRM and alarm() belong to the
/// handler.
class CrashHandler {
 public:
  /// Records go to `descriptor`, which stays the caller's and stays open for as long as this lives.
  /// The calling thread gets an AlternateSignalStack, so destroy this on the same thread.
  /// Throws UsageError when the descriptor is not open, the limit is below a second, or the process
  /// has a CrashHandler already; SystemError when the machine refuses.
  explicit CrashHandler(int descriptor, const CrashHandlerOptions& options = {});
  CrashHandler(const CrashHandler&) = delete;
  CrashHandler& operator=(const CrashHandler&) = delete;
  /// Puts back the handlers of before, except where somebody has put theirs over ours since.
  ~CrashHandler();

  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP};

 private:
  AlternateSignalStack stack_;
  std::array<struct sigaction, kSignals.size()> previous_{};  // in the order of kSignals
};

}  // namespace lockstep
