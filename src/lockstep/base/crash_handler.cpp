#include "lockstep/base/crash_handler.h"

#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "lockstep/base/crash_record_internal.h"
#include "lockstep/base/error.h"

// The functions from die() to on_crash() call only what signal-safety(7) allows, with one
// exception: backtrace(). It is safe once it is loaded (the constructor loads it), unless the crash
// happened inside the unwinder or the loader. The nested branch and the SIGALRM watchdog handle
// these two cases.

namespace lockstep {
namespace {

// The kernel saves up to 10 KiB of vector registers there; the rest is for the unwinder and
// sanitizers.
constexpr std::size_t kStackBytes = 256u << 10;

enum class Stage { idle, head, frames, mappings, over };

// A signal handler receives no pointer of ours, and the kernel has one handler per signal for the
// whole process. So process-wide state is unavoidable here, and only here. It is never freed: a
// thread that crashes while the CrashHandler is destroyed reads valid memory.
struct CrashState {
  std::atomic<bool> installed{false};
  std::atomic<pid_t> process{0};  // whose crashes are recorded
  std::atomic<pid_t> owner{0};    // the thread that writes the record; 0 until one crashes
  std::atomic<Stage> stage{Stage::idle};
  std::atomic<int> descriptor{-1};
  std::atomic<unsigned> limit_seconds{0};
  int signal = 0;    // of the first crash, written by the owner before it starts the watchdog
  siginfo_t info{};  // the same
};
static_assert(std::atomic<Stage>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);
constinit CrashState state;

pid_t thread_id() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

[[noreturn]] void die(int signal, siginfo_t* info) {
  state.stage = Stage::over;
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(signal, &plain, nullptr);
  sigset_t itself;
  sigemptyset(&itself);
  sigaddset(&itself, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &itself, nullptr);
  // With the first siginfo, so that the core dump shows the first fault and not this call.
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), thread_id(), signal, info);
  ::raise(signal);
  ::_exit(128 + signal);  // process 1 of a container: the kernel shields it from its own signals
}

void on_watchdog(int /*signal*/) { die(state.signal, &state.info); }

// SIGALRM ends a report that hangs; a report that crashes enters on_crash again. The signals are
// unblocked here because the thread may block them, and the thread sanitizer blocks all of them
// around a handler.
void start_watchdog() {
  struct sigaction action {};
  action.sa_handler = on_watchdog;
  action.sa_flags = SA_ONSTACK;
  sigfillset(&action.sa_mask);
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t needed;
  sigemptyset(&needed);
  sigaddset(&needed, SIGALRM);
  for (const int signal : CrashHandler::kSignals) sigaddset(&needed, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &needed, nullptr);
  ::alarm(state.limit_seconds);
}

[[noreturn]] void finish() {
  state.stage = Stage::mappings;
  write_crash_end(state.descriptor);
  die(state.signal, &state.info);
}

void on_crash(int signal, siginfo_t* info, void* context) {
  // A handler that replaced this one may still call it after the CrashHandler is destroyed.
  if (!state.installed) die(signal, info);
  // A forked child inherits the handlers and the descriptor; its crash is not recorded.
  if (state.process != ::getpid()) die(signal, info);
  pid_t owner = 0;
  if (!state.owner.compare_exchange_strong(owner, thread_id())) {
    while (owner != thread_id()) ::pause();  // the writer or the watchdog ends the process
    if (state.stage != Stage::frames) die(state.signal, &state.info);
    write_crash_nested(state.descriptor, signal);
    finish();
  }
  state.stage = Stage::head;
  state.signal = signal;
  state.info = *info;
  start_watchdog();
  write_crash_head(state.descriptor, signal, *info);
  state.stage = Stage::frames;
  write_crash_frames(state.descriptor, context);
  finish();
}

struct sigaction crash_action() {
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);  // blocks all other signals while a record is written
  return action;
}

}  // namespace

AlternateSignalStack::AlternateSignalStack() : thread_(thread_id()) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = kStackBytes + page;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) {
    throw SystemError(fmt::format("cannot map {} bytes for a signal stack", bytes), errno);
  }
  memory_ = {static_cast<std::byte*>(memory), bytes};
  stack_t stack{};
  stack.ss_sp = memory_.data() + page;
  stack.ss_size = kStackBytes;
  if (::mprotect(memory, page, PROT_NONE) == 0 && ::sigaltstack(&stack, &previous_) == 0) return;
  const int error = errno;
  ::munmap(memory, bytes);
  throw SystemError(fmt::format("cannot use {} bytes as a signal stack", bytes), error);
}

AlternateSignalStack::~AlternateSignalStack() {
  if (thread_ != thread_id()) return;
  if (::sigaltstack(&previous_, nullptr) == 0) ::munmap(memory_.data(), memory_.size());
}

CrashHandler::CrashHandler(int descriptor, const CrashHandlerOptions& options) {
  if (::fcntl(descriptor, F_GETFD) < 0) {
    throw UsageError(fmt::format(
        "a CrashHandler was given descriptor {}, which is not open: open it first", descriptor));
  }
  if (options.limit < std::chrono::seconds(1) || options.limit > std::chrono::hours(1)) {
    throw UsageError(
        fmt::format("CrashHandlerOptions::limit is {} s: set it to a value from 1 s to 3600 s",
                    options.limit.count()));
  }
  if (state.installed.exchange(true)) {
    throw UsageError(
        "this process already has a CrashHandler, and a signal has one handler: construct a single "
        "one, best in main()");
  }
  // The first call loads libgcc_s, which allocates memory: done here, not in the handler.
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);
  state.descriptor = descriptor;
  state.process = ::getpid();
  state.limit_seconds = static_cast<unsigned>(options.limit.count());
  const struct sigaction action = crash_action();
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    ::sigaction(kSignals[i], &action, &previous_[i]);
}

CrashHandler::~CrashHandler() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now {};
    ::sigaction(kSignals[i], nullptr, &now);
    if (now.sa_sigaction == on_crash) ::sigaction(kSignals[i], &previous_[i], nullptr);
  }
  state.installed = false;
}

}  // namespace lockstep
