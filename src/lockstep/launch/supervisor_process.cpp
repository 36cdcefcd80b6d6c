#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "lockstep/launch/rank_outcome.h"
#include "lockstep/launch/supervisor_process_internal.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kOrphanGrace = 1'000 * kMillisecond;  // from the launcher's end to SIGKILL
constexpr std::int64_t kKillAgain = 20 * kMillisecond;       // a process may have forked meanwhile
constexpr std::int64_t kGiveUp = 10'000 * kMillisecond;      // a process is blocked in the kernel
constexpr std::int64_t kNever = INT64_MAX;

std::int64_t now_ns() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void tell(int socket, SupervisorMessage message) noexcept {
  message.steady_ns = now_ns();
  while (::send(socket, &message, sizeof(message), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

void close_from(int first) noexcept {
  if (::close_range(static_cast<unsigned>(first), ~0u, 0) == 0) return;
  rlimit limit{};  // a kernel before 5.9
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int end = limit.rlim_cur < 65'536 ? static_cast<int>(limit.rlim_cur) : 65'536;
  for (int number = first; number < end; ++number) ::close(number);
}

// The worker until it executes its program.
class Embryo {
 public:
  explicit Embryo(const SupervisorPlan& plan) noexcept : plan_(plan), socket_(plan.socket) {}

  [[noreturn]] void become_program(pid_t supervisor) noexcept {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != supervisor) ::_exit(125);  // it ended before the statement above
    arrange_descriptors();
    if (plan_.processors != nullptr &&
        ::sched_setaffinity(0, plan_.processors_bytes, plan_.processors) != 0) {
      fail(StartFailure::Action::pin, errno);
    }
    if (plan_.descriptor_limit > 0) {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = plan_.descriptor_limit;
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    restore_default_signals();
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    fail(StartFailure::Action::execute, execute());
  }

 private:
  // A signal that arrived since the fork is pending. It must have its default effect here:
  // execve(2) removes the launcher's handlers only after they have run in this process.
  static void restore_default_signals() noexcept {
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action {};
      if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
      action = {};
      action.sa_handler = SIG_DFL;
      ::sigaction(signal, &action, nullptr);
    }
  }

  // Every source is first duplicated above all assigned numbers, so that no assignment overwrites
  // the source of a later one.
  void arrange_descriptors() noexcept {
    const auto num_standard = static_cast<int>(plan_.standard.size());
    const int num_assigned = num_standard + static_cast<int>(plan_.descriptors.size());
    const auto source = [&](int number) noexcept {
      return number < num_standard
                 ? plan_.standard[static_cast<std::size_t>(number)]
                 : plan_.descriptors[static_cast<std::size_t>(number - num_standard)];
    };
    socket_ = moved_above(socket_, num_assigned);
    std::array<int, 16> moved{};  // Supervisor's constructor checks this limit
    for (int number = 0; number < num_assigned; ++number) {
      moved[static_cast<std::size_t>(number)] = moved_above(source(number), num_assigned);
    }
    for (int number = 0; number < num_assigned; ++number) {
      if (::dup2(moved[static_cast<std::size_t>(number)], number) < 0) {
        fail(StartFailure::Action::assign_descriptors, errno);
      }
    }
    if (::dup3(socket_, num_assigned, O_CLOEXEC) < 0)
      fail(StartFailure::Action::assign_descriptors, errno);
    socket_ = num_assigned;
    close_from(num_assigned + 1);
  }

  int moved_above(int number, int last) noexcept {
    const int moved = ::fcntl(number, F_DUPFD_CLOEXEC, last + 1);
    if (moved < 0) fail(StartFailure::Action::assign_descriptors, errno);
    return moved;
  }

  // Returns the error number, as execvp does: a file without permission has priority over missing
  // files.
  int execute() const noexcept {
    int reason = ENOENT;
    for (const char* path : plan_.paths) {
      ::execve(path, plan_.arguments, plan_.environment);
      if (errno == EACCES) {
        reason = EACCES;
      } else if (errno != ENOENT && errno != ENOTDIR) {
        return errno;
      }
    }
    return reason;
  }

  [[noreturn]] void fail(StartFailure::Action action, int error) const noexcept {
    tell(socket_, {.kind = SupervisorMessage::Kind::start_failed,
                   .value = error,
                   .action = static_cast<std::uint32_t>(action)});
    if (action != StartFailure::Action::execute) ::_exit(125);
    ::_exit(error == ENOENT ? 127 : 126);
  }

  const SupervisorPlan& plan_;
  int socket_;
};

class SupervisorProcess {
 public:
  explicit SupervisorProcess(const SupervisorPlan& plan) noexcept
      : socket_(plan.socket), launcher_(plan.launcher), linger_ns_(plan.linger_ns) {}

  [[noreturn]] void run(const SupervisorPlan& plan) noexcept {
    ::setsid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_NAME, "lockstep-superv");
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;  // if SIGCHLD were ignored, the worker's status would be lost
    ::sigaction(SIGCHLD, &plain, nullptr);
    const pid_t self = ::getpid();
    worker_ = ::_Fork();
    if (worker_ == 0) Embryo(plan).become_program(self);
    const int error = errno;
    keep_only_own_descriptors();
    if (worker_ < 0) {
      tell(socket_, {.kind = SupervisorMessage::Kind::start_failed,
                     .value = error,
                     .action = static_cast<std::uint32_t>(StartFailure::Action::fork)});
      tell(socket_, {.kind = SupervisorMessage::Kind::ended, .value = 125 << 8});
      ::_exit(0);
    }
    ::setpgid(worker_, worker_);  // also here: a signal may arrive before the worker has done it
    tell(socket_, {.kind = SupervisorMessage::Kind::started, .value = worker_});
    for (;;) attend();
  }

 private:
  // The socket becomes 0, the launcher's pidfd 1, the signalfd 2. Any other descriptor would keep
  // pipes and the sockets of other supervisors open.
  void keep_only_own_descriptors() noexcept {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    const int signals = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    const std::array sources{::fcntl(socket_, F_DUPFD, 3), ::fcntl(launcher_, F_DUPFD, 3),
                             ::fcntl(signals, F_DUPFD, 3)};
    for (int number = 0; number < 3; ++number) {
      if (::dup2(sources[static_cast<std::size_t>(number)], number) < 0) ::close(number);
    }
    socket_ = 0;
    launcher_ = sources[1] >= 0 ? 1 : -1;
    signals_ = 2;
    close_from(3);
  }

  void attend() noexcept {
    std::array<pollfd, 3> waits{
        {{socket_, POLLIN, 0}, {launcher_, POLLIN, 0}, {signals_, POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), wait_milliseconds());
    if (waits[0].revents != 0) hear();
    if (waits[1].revents != 0) lose_launcher();
    std::array<signalfd_siginfo, 8> drained;  // NOLINT: filled by the kernel
    while (::read(signals_, drained.data(), sizeof(drained)) > 0) {
    }
    reap();
    if (now_ns() >= kill_at_) kill_again();
  }

  int wait_milliseconds() const noexcept {
    if (kill_at_ == kNever) return -1;
    const std::int64_t left = kill_at_ - now_ns();
    return left <= 0 ? 0 : static_cast<int>(left / kMillisecond) + 1;
  }

  void hear() noexcept {
    std::uint8_t order = 0;
    const ssize_t count = ::recv(socket_, &order, 1, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return lose_launcher();
    if (order == kKillAll) {
      kill_at_ = 0;
    } else if (!worker_ended_) {
      ::kill(worker_, order);
    }
  }

  void lose_launcher() noexcept {
    socket_ = -1;  // poll ignores negative numbers
    launcher_ = -1;
    if (launcher_lost_) return;
    launcher_lost_ = true;
    tell_all_to_end(kOrphanGrace);
  }

  void reap() noexcept {
    int status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid != worker_) continue;
      worker_ended_ = true;
      if (!launcher_lost_) tell(socket_, {.kind = SupervisorMessage::Kind::ended, .value = status});
      tell_all_to_end(linger_ns_);
    }
    if (!worker_ended_) return;
    // Orphans become children of this process, so without children no process is left; and the
    // remaining children may all have left the session.
    if (pid < 0 || signal_all(0) == 0) ::_exit(0);
  }

  void kill_again() noexcept {
    const std::int64_t now = now_ns();
    if (first_kill_ == 0) first_kill_ = now;
    if (now - first_kill_ > kGiveUp) ::_exit(0);
    signal_all(SIGKILL);
    kill_at_ = now + kKillAgain;
  }

  // Returns the number of remaining processes; without /proc, the worker's group counts as one.
  int signal_all(int signal) const noexcept {
    const int members = signal_session(::getpid(), signal);
    return members >= 0 ? members : static_cast<int>(::kill(-worker_, signal) == 0);
  }

  void tell_all_to_end(std::int64_t grace_ns) noexcept {
    const int signal = told_all_ ? 0 : SIGTERM;  // some programs end at once on a second SIGTERM
    told_all_ = true;
    if (signal_all(signal) > 0) set_kill_time(now_ns() + grace_ns);
  }

  void set_kill_time(std::int64_t at) noexcept {
    if (at < kill_at_) kill_at_ = at;
  }

  int socket_;
  int launcher_;
  int signals_ = -1;
  std::int64_t linger_ns_;
  pid_t worker_ = -1;
  bool worker_ended_ = false;
  bool launcher_lost_ = false;
  bool told_all_ = false;
  std::int64_t kill_at_ = kNever;
  std::int64_t first_kill_ = 0;
};

}  // namespace

void run_supervisor(const SupervisorPlan& plan) noexcept { SupervisorProcess(plan).run(plan); }

}  // namespace lockstep
