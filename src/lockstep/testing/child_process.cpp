#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/testing/child_process_internal.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kKeptOutputBytes = 64u << 10;

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("cannot create a pipe", errno);
  Pipe result{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  ::fcntl(result.read_end.number(), F_SETFL, O_NONBLOCK);  // of this end only: the child may block
  return result;
}

// posix_spawn's two lists, freed at the end of the scope.
class SpawnPlan {
 public:
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  // The child's `number` will be our `source`. The source is first moved above all numbers that
  // children are given, so that no assignment overwrites the source of a later one.
  void give(int source, int number) {
    constexpr int kAboveAll = 64;
    moved_.emplace_back(::fcntl(source, F_DUPFD_CLOEXEC, kAboveAll));
    if (!moved_.back()) {
      throw SystemError(fmt::format("cannot pass descriptor {} to a child process", source), errno);
    }
    ::posix_spawn_file_actions_adddup2(&actions_, moved_.back().number(), number);
    if (number >= first_closed_) first_closed_ = number + 1;
  }

  pid_t spawn(std::vector<std::string> arguments, std::vector<std::string> environment) {
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, first_closed_);
    const auto argv = pointers_to(arguments);
    const auto envp = pointers_to(environment);
    pid_t pid = -1;
    const int error =
        ::posix_spawn(&pid, "/proc/self/exe", &actions_, &attributes_, argv.data(), envp.data());
    if (error != 0)
      throw SystemError("cannot execute this program again as a child process", error);
    return pid;
  }

 private:
  static std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    pointers.reserve(texts.size() + 1);
    for (auto& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
  std::vector<FileDescriptor> moved_;
  int first_closed_ = ChildProcess::kFirstDescriptor;
};

}  // namespace

std::string describe(const ProcessEnd& end) {
  if (end.exit_code) return fmt::format("ended with exit code {}", *end.exit_code);
  const int signal = end.signal.value_or(0);
  const char* name = ::sigabbrev_np(signal);
  return fmt::format("was killed by signal {} (SIG{})", signal, name != nullptr ? name : "?");
}

ChildProcess::ChildProcess(const std::vector<std::string>& arguments,
                           const Environment& environment, std::span<const int> descriptors) {
  const auto nothing = FileDescriptor::open("/dev/null", O_RDONLY);
  auto output = make_pipe();
  SpawnPlan plan;
  plan.give(nothing.number(), STDIN_FILENO);
  plan.give(output.write_end.number(), STDOUT_FILENO);
  plan.give(output.write_end.number(), STDERR_FILENO);
  int number = kFirstDescriptor;
  for (const int descriptor : descriptors) plan.give(descriptor, number++);

  std::vector<std::string> all{program_invocation_name};
  all.insert(all.end(), arguments.begin(), arguments.end());
  pipe_ = std::move(output.read_end);
  pid_ = plan.spawn(std::move(all), environment.lines());
  // Not reaped yet, so the number is still that of the child even if it has ended.
  process_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (process_) return;
  const int error = errno;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  throw SystemError(fmt::format("cannot open a descriptor for child process {}", pid_), error);
}

ChildProcess::~ChildProcess() {
  if (!process_ || end_) return;
  (void)try_send(SIGKILL);
  ::waitpid(pid_, nullptr, 0);  // returns, because no process survives SIGKILL
}

bool ChildProcess::try_send(int signal) const {
  return ::syscall(SYS_pidfd_send_signal, process_.number(), signal, nullptr, 0) == 0;
}

void ChildProcess::attend() {
  int status = 0;
  if (!end_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    end_.emplace();
    if (WIFEXITED(status)) end_->exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) end_->signal = WTERMSIG(status);
  }
  read_output();
  // A grandchild may keep the pipe open longer; its output is not waited for.
  if (end_) pipe_.reset();
}

void ChildProcess::read_output() {
  std::array<char, 16384> chunk{};
  while (pipe_) {
    const auto count = ::read(pipe_.number(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return pipe_.reset();
    output_.append(chunk.data(), static_cast<std::size_t>(count));
    if (output_.size() > 2 * kKeptOutputBytes) output_.erase(0, output_.size() - kKeptOutputBytes);
  }
}

bool attend_until_ended(std::span<ChildProcess> children, Deadline deadline,
                        const std::function<void(std::size_t)>& ended) {
  for (;;) {
    std::vector<pollfd> waits;
    for (std::size_t i = 0; i < children.size(); ++i) {
      ChildProcess& child = children[i];
      child.attend();
      if (child.end() && ended) ended(i);
      if (child.end()) continue;
      waits.push_back({child.end_descriptor(), POLLIN, 0});
      waits.push_back({child.output_descriptor(), POLLIN, 0});  // poll ignores a negative number
    }
    if (waits.empty()) return true;
    if (deadline.expired()) return false;
    const int count = ::poll(waits.data(), waits.size(), deadline.poll_milliseconds());
    if (count < 0 && errno != EINTR) throw SystemError("cannot wait for child processes", errno);
  }
}

std::string last_lines(const std::string& text, int count) {
  auto start = text.size();
  if (start > 0 && text.back() == '\n') --start;
  while (start > 0 && !(text[start - 1] == '\n' && --count == 0)) --start;
  return text.substr(start);
}

}  // namespace lockstep::testing
