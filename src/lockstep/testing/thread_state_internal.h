// The state of a thread in the kernel, and its stack: together they show why a thread hangs.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

/// For example "S (sleeping), kernel function futex_wait_queue, system call 98". A value that /proc
/// does not provide to this process is omitted; a thread that has ended is "gone". `process` may be
/// another process.
[[nodiscard]] std::string kernel_state(pid_t process, pid_t thread);

/// The stacks of other threads of this process, in the order of `threads`, each as lines such as
/// "#2 libc.so.6+0x84a1c pthread_cond_wait+0x14c"; addr2line takes the file and the number after
/// the plus. For a thread that does not answer by `deadline`, a single line states that: it may
/// block signals or never leave the kernel, and the thread sanitizer delivers signals only at the
/// next blocking libc call. Use this only in a process that is about to end: a realtime signal
/// interrupts the threads' system calls, and its handler stays installed, because a late signal
/// would otherwise end the process.
[[nodiscard]] std::vector<std::string> sample_stacks(std::span<const pid_t> threads,
                                                     Deadline deadline);

}  // namespace lockstep::testing
