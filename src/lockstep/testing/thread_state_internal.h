// What the kernel knows about a thread, and where in the code it is: the two halves of "why does it
// hang".
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep::testing {

/// For example "S (sleeping), kernel function futex_wait_queue, system call 98". What /proc does
/// not say, or not to us, is left out; a thread that is no more is "gone". `process` may be another
/// process.
[[nodiscard]] std::string kernel_state(pid_t process, pid_t thread);

/// The stacks of other threads of this process, in the order of `threads`, each as lines such as
/// "#2 libc.so.6+0x84a1c pthread_cond_wait+0x14c"; addr2line takes the file and the number after
/// the plus. A single line says so when a thread does not answer by `deadline`: it may block
/// signals, or never leave the kernel, and the thread sanitizer hands signals on at its next
/// blocking libc call only. For a process that is about to end: a realtime signal interrupts the
/// threads' system calls, and its handler stays installed, because a late answer would otherwise
/// end the process.
[[nodiscard]] std::vector<std::string> sample_stacks(std::span<const pid_t> threads,
                                                     Deadline deadline);

}  // namespace lockstep::testing
