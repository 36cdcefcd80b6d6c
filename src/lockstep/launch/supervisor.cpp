#include "lockstep/launch/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/launch/exec_arguments.h"
#include "lockstep/launch/program_path.h"
#include "lockstep/launch/supervisor_process_internal.h"

namespace lockstep {
namespace {

// supervisor_process.cpp has room for 16, including 0, 1 and 2.
constexpr std::size_t kMostDescriptors = 12;
// A killed process ends at once, unless it is blocked in the kernel.
constexpr std::chrono::seconds kSweepLimit{2};
// For a supervisor to kill its session; after that it is assumed to be stopped.
constexpr std::chrono::seconds kKillLimit{2};

struct Pair {
  FileDescriptor ours;
  FileDescriptor theirs;
};

Pair make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw SystemError("cannot create a pipe for a worker's output", errno);
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // this end only: the worker's end blocks
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Pair make_socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw SystemError("cannot create a socket pair for a worker's supervisor", errno);
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

FileDescriptor open_process(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

void signal_process(int process, int signal) noexcept {
  ::syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0);
}

bool wait_for_end(int process, std::chrono::milliseconds limit) noexcept {
  const auto deadline = Deadline::after(limit);
  pollfd end{process, POLLIN, 0};
  int count = 0;
  do {
    count = ::poll(&end, 1, deadline.poll_milliseconds());
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

struct FreeProcessors {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};

class ProcessorSet {
 public:
  explicit ProcessorSet(const std::vector<int>& processors) {
    if (processors.empty()) return;
    const auto most =
        static_cast<std::size_t>(*std::max_element(processors.begin(), processors.end())) + 1;
    bytes_ = CPU_ALLOC_SIZE(most);
    set_.reset(CPU_ALLOC(most));
    CPU_ZERO_S(bytes_, set_.get());
    for (const int processor : processors) {
      CPU_SET_S(static_cast<std::size_t>(processor), bytes_, set_.get());
    }
  }

  [[nodiscard]] const cpu_set_t* get() const noexcept { return set_.get(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<cpu_set_t, FreeProcessors> set_;
  std::size_t bytes_ = 0;
};

// Forks with all signals blocked, so that none of the launcher's handlers runs in the child. _Fork
// does not call the handlers of pthread_atfork: some libraries stop their threads there.
pid_t fork_supervisor(const SupervisorPlan& plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::_Fork();
  if (pid == 0) run_supervisor(plan);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw SystemError("cannot fork a supervisor for a worker", error);
  return pid;
}

SupervisorNews news_of(const SupervisorMessage& message) {
  switch (message.kind) {
    case SupervisorMessage::Kind::started:
      return WorkerStarted{message.value};
    case SupervisorMessage::Kind::start_failed:
      return StartFailure{static_cast<StartFailure::Action>(message.action), message.value};
    case SupervisorMessage::Kind::ended:
      break;
  }
  const std::chrono::steady_clock::time_point at{std::chrono::nanoseconds(message.steady_ns)};
  return WorkerEnded{ExitStatus(message.value), at};
}

}  // namespace

Supervisor::Supervisor(const SupervisedCommand& command) {
  if (command.command.empty()) throw UsageError("no program to run was given: name one");
  if (command.descriptors.size() > kMostDescriptors) {
    throw UsageError(fmt::format("{} descriptors for a worker are too many: the limit is {}",
                                 command.descriptors.size(), kMostDescriptors));
  }
  auto arguments = command.command;
  auto lines = command.environment.lines();
  auto candidates = program_candidates(command.command[0], command.environment);
  const auto paths = exec_arguments(candidates);
  const auto argv = exec_arguments(arguments);
  const auto envp = exec_arguments(lines);
  const ProcessorSet processors(command.processors);

  auto sockets = make_socket_pair();
  auto output = make_pipe();
  auto error = make_pipe();
  const auto nothing = FileDescriptor::open("/dev/null", O_RDONLY);
  const auto launcher = open_process(::getpid());
  const std::array standard{command.standard_input < 0 ? nothing.number() : command.standard_input,
                            output.theirs.number(), error.theirs.number()};

  pid_ = fork_supervisor({
      .socket = sockets.theirs.number(),
      .launcher = launcher.number(),
      .standard = standard,
      .descriptors = command.descriptors,
      .paths = {paths.data(), candidates.size()},
      .arguments = argv.data(),
      .environment = envp.data(),
      .processors = processors.get(),
      .processors_bytes = processors.bytes(),
      .linger_ns = std::chrono::nanoseconds(command.linger).count(),
      .descriptor_limit = command.descriptor_limit,
  });
  socket_ = std::move(sockets.ours);
  standard_output = std::move(output.ours);
  standard_error = std::move(error.ours);
  process_ = open_process(pid_);
  if (process_) return;
  const int number = errno;
  kill_all();
  ::waitpid(pid_, nullptr, 0);
  throw SystemError(
      fmt::format(
          "cannot open a pidfd of supervisor process {} (this needs Linux 5.4 or newer, and "
          "with very many ranks a higher `ulimit -Hn`)",
          pid_),
      number);
}

Supervisor::~Supervisor() {
  if (!process_ || collected_) return;
  kill_all();
  if (!wait_for_end(process_.number(), kKillLimit)) {
    force();
    (void)wait_for_end(process_.number(), kKillLimit);
  }
  (void)try_collect();
}

void Supervisor::send(int signal) const noexcept {
  const auto order = static_cast<std::uint8_t>(signal);
  ::send(socket_.number(), &order, 1, MSG_NOSIGNAL);
}

void Supervisor::kill_all() const noexcept {
  ::send(socket_.number(), &kKillAll, 1, MSG_NOSIGNAL);
  signal_process(process_.number(), SIGCONT);  // a stopped supervisor would not read it
}

void Supervisor::force() const noexcept {
  // The supervisor is not reaped yet, so its session id is not reused. The worker dies with the
  // supervisor; other processes of the session may fork until they are killed.
  const auto deadline = Deadline::after(kSweepLimit);
  while (signal_session(pid_, SIGKILL) > 0 && !deadline.expired()) ::sched_yield();
  signal_process(process_.number(), SIGKILL);
}

std::optional<SupervisorNews> Supervisor::try_receive() {
  SupervisorMessage message;
  for (;;) {
    const auto count = ::recv(socket_.number(), &message, sizeof(message), 0);
    if (count == ssize_t{sizeof(message)}) return news_of(message);
    if (count < 0 && errno == EINTR) continue;
    return std::nullopt;
  }
}

bool Supervisor::try_collect() {
  if (collected_) return true;
  siginfo_t ended{};
  const auto process = static_cast<id_t>(process_.number());
  const int result = ::waitid(P_PIDFD, process, &ended, WEXITED | WNOHANG | WNOWAIT);
  if (result == 0 && ended.si_pid == 0) return false;
  // The supervisor is not reaped yet, so its session id is not reused.
  if (result == 0 && ended.si_code != CLD_EXITED) {
    const auto deadline = Deadline::after(kSweepLimit);
    while (signal_session(pid_, SIGKILL) > 0 && !deadline.expired()) ::sched_yield();
  }
  ::waitid(P_PIDFD, process, &ended, WEXITED | WNOHANG);
  collected_ = true;
  return true;
}

}  // namespace lockstep
