#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/testing/thread_state_internal.h"

namespace lockstep::testing {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const char* state_word(char letter) {
  switch (letter) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in uninterruptible sleep";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "ended, not yet collected";
    case 'X':
      return "ended";
    default:
      return "unknown to lockstep";
  }
}

using Frames = std::array<void*, 48>;
static_assert(sizeof(Frames) <= PIPE_BUF, "a stack must pass through the pipe in one piece");

// Answers on the pipe whose descriptor comes with the signal, so this needs no global variable and
// no memory to be freed.
void on_sample(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const int kept = errno;
  Frames frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  const auto bytes = static_cast<std::size_t>(count) * sizeof(void*);
  // Not through libc: the thread sanitizer would not see that the signal orders this after the
  // creation of the pipe. A failure is not reported: the thread that asks waits until its deadline.
  ::syscall(SYS_write, info->si_value.sival_int, frames.data(), bytes);
  errno = kept;
}

int install_sampler() {
  const int signal = SIGRTMAX - 1;  // libraries and debuggers often use the low ones
  struct sigaction action {};
  action.sa_sigaction = on_sample;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);  // the first call loads the unwinder, which a handler must not do
  return signal;
}

// The pipe on which a thread sends its stack.
struct Answer {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

std::optional<Answer> ask(pid_t thread, int signal) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("cannot create a pipe", errno);
  Answer answer{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_int = answer.write_end.number();
  if (::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), thread, signal, &info) != 0) return std::nullopt;
  return answer;
}

// The frames, innermost first; empty when there is no answer.
std::vector<void*> wait_for(Answer& answer, Deadline deadline) {
  pollfd wait{answer.read_end.number(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&wait, 1, deadline.poll_milliseconds());
  } while (ready < 0 && errno == EINTR);
  if (ready != 1) {
    // Left open: a late answer must not go to another file, nor raise SIGPIPE.
    (void)answer.read_end.release();
    (void)answer.write_end.release();
    return {};
  }
  Frames frames{};
  const auto bytes = ::read(answer.read_end.number(), frames.data(), sizeof(frames));
  const auto count = bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof(void*) : 0;
  std::vector<void*> result(count);
  std::copy_n(frames.begin(), count, result.begin());
  return result;
}

std::string name_of(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return status == 0 ? plain.get() : symbol;
}

std::string describe_frame(int number, void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return fmt::format("#{} {:#x}\n", number, place);
  }
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* file = slash != nullptr ? slash + 1 : info.dli_fname;
  const auto base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  auto line = fmt::format("#{} {}+{:#x}", number, file, place - base);
  if (info.dli_sname != nullptr) {
    const auto start = reinterpret_cast<std::uintptr_t>(info.dli_saddr);
    line += fmt::format(" {}+{:#x}", name_of(info.dli_sname), place - start);
  }
  return line + "\n";
}

std::string describe(std::span<void* const> frames) {
  // The first two are the sampler's own: the handler and the kernel's return from it.
  if (frames.size() <= 2) return "no stack: the thread did not answer a signal\n";
  std::string text;
  int number = 0;
  for (void* frame : frames.subspan(2)) text += describe_frame(number++, frame);
  return text;
}

}  // namespace

std::string kernel_state(pid_t process, pid_t thread) {
  const auto folder = fmt::format("/proc/{}/task/{}/", process, thread);
  const auto stat = content_of(folder + "stat");
  // "<id> (<name>) <state> …", and the name may hold brackets and spaces of its own.
  const auto bracket = stat.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= stat.size()) return "gone";
  const char letter = stat[bracket + 2];
  auto text = fmt::format("{} ({})", letter, state_word(letter));
  const auto channel = content_of(folder + "wchan");
  if (!channel.empty() && channel != "0") text += ", kernel function " + channel;
  const auto call = content_of(folder + "syscall");
  // "<number> <arguments>"; "running", or "-1 …" outside a system call.
  if (!call.empty() && call.front() >= '0' && call.front() <= '9') {
    text += ", system call " + call.substr(0, call.find(' '));
  }
  return text;
}

std::vector<std::string> sample_stacks(std::span<const pid_t> threads, Deadline deadline) {
  const int signal = install_sampler();
  std::vector<std::optional<Answer>> answers;
  answers.reserve(threads.size());
  for (const pid_t thread : threads) answers.push_back(ask(thread, signal));
  std::vector<std::string> stacks;
  stacks.reserve(threads.size());
  for (auto& answer : answers) {
    stacks.push_back(answer ? describe(wait_for(*answer, deadline))
                            : "no stack: the thread is gone\n");
  }
  return stacks;
}

}  // namespace lockstep::testing
