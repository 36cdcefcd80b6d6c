#include "cli/command.h"

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
#include <optional>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/exec_arguments.h"

namespace lockstep::cli {
namespace {

// Until the end of the stream or `deadline`.
std::string read_to_end(const FileDescriptor& file, const std::optional<Deadline>& deadline) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    pollfd event{file.number(), POLLIN, 0};
    if (deadline && ::poll(&event, 1, deadline->poll_milliseconds()) == 0) return text;
    const auto count = ::read(file.number(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

// The file actions of the child: its folder, no input, one pipe for both outputs.
class FileActions {
 public:
  FileActions(const std::filesystem::path& folder, int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, 1);
    posix_spawn_file_actions_adddup2(&actions_, output, 2);
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

namespace {

// Waits for the end of `child`; kills it at the deadline. Returns its code.
int wait_for_end(pid_t child, const std::optional<Deadline>& deadline) {
  bool killed = false;
  if (deadline) {
    const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    pollfd event{process.number(), POLLIN, 0};
    killed = ::poll(&event, 1, deadline->poll_milliseconds()) == 0;
    if (killed) ::kill(child, SIGKILL);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (killed) return kTimedOut;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

CommandResult run(const std::vector<std::string>& words, const std::filesystem::path& folder,
                  const Environment& environment, const std::optional<Deadline>& deadline) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("cannot create a pipe", errno);
  const FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1]);
  auto arguments = words;
  auto variables = environment.lines();
  const FileActions actions(folder, theirs.number());
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, words.front().c_str(), actions.get(), nullptr,
                     exec_arguments(arguments).data(), exec_arguments(variables).data());
  if (error == ENOENT) return {127, fmt::format("{} is not installed", words.front())};
  if (error != 0) throw SystemError(fmt::format("cannot start {}", words.front()), error);
  theirs.reset();
  CommandResult result{0, read_to_end(ours, deadline)};
  result.code = wait_for_end(child, deadline);
  return result;
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& words,
                          const std::filesystem::path& folder) {
  return run(words, folder, Environment::of_process(), std::nullopt);
}

CommandResult run_command_until(const std::vector<std::string>& words,
                                const std::filesystem::path& folder, const Environment& environment,
                                Deadline deadline) {
  return run(words, folder, environment, deadline);
}

}  // namespace lockstep::cli
