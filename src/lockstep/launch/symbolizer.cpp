#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/exec_arguments.h"
#include "lockstep/launch/symbolizer_internal.h"

namespace lockstep {
namespace {

pid_t spawn_tool(std::vector<std::string> command, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // Only the launcher handles a Ctrl-C at the terminal.
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  auto variables = Environment::of_process().lines();
  const auto arguments = exec_arguments(command);
  const auto environment = exec_arguments(variables);
  pid_t pid = -1;
  if (::posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(),
                     environment.data()) != 0) {
    pid = -1;
  }
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return pid;
}

// All bytes up to the end of the stream; nullopt when `deadline` passes first.
std::optional<std::string> read_until(int descriptor, Deadline deadline) {
  std::string text;
  std::array<char, 16384> chunk{};
  for (;;) {
    pollfd wait{descriptor, POLLIN, 0};
    const int ready = ::poll(&wait, 1, deadline.poll_milliseconds());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const auto count = ::read(descriptor, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

NamedLocation named(std::string_view function, std::string_view source) {
  NamedLocation location;
  if (!function.starts_with("??")) location.function = function;
  if (source.find("??") == std::string_view::npos && !source.ends_with(":0") &&
      !source.ends_with(":?")) {
    const auto note = source.find(" (discriminator");
    location.source = source.substr(0, note);
  }
  return location;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

}  // namespace

std::optional<std::string> try_run_tool(const std::vector<std::string>& command,
                                        Deadline deadline) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t pid = spawn_tool(command, write_end.number());
  if (pid < 0) return std::nullopt;
  write_end.reset();
  const FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  auto text = read_until(read_end.number(), deadline);
  // It may have closed its output without ending.
  pollfd end{process.number(), POLLIN, 0};
  if (!text || ::poll(&end, 1, deadline.poll_milliseconds()) <= 0) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0 ? text : std::nullopt;
}

std::vector<std::vector<NamedLocation>> parse_addr2line(std::string_view text, std::size_t count) {
  std::vector<std::vector<NamedLocation>> result;
  const auto lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size();) {
    if (lines[i].starts_with("0x")) {
      result.emplace_back();
      ++i;
    } else if (!result.empty() && i + 1 < lines.size()) {
      auto location = named(lines[i], lines[i + 1]);
      if (!location.function.empty()) result.back().push_back(std::move(location));
      i += 2;
    } else {
      ++i;
    }
  }
  result.resize(count);
  return result;
}

std::vector<std::vector<NamedLocation>> name_locations(std::span<const CodeLocation> locations,
                                                       Deadline deadline) {
  std::vector<std::vector<NamedLocation>> result(locations.size());
  std::vector<std::string> modules;
  for (const auto& location : locations) {
    const bool known = std::find(modules.begin(), modules.end(), location.module) != modules.end();
    // The path of a mapping may be a pipe by now, on which addr2line would block.
    std::error_code error;
    if (!known && location.module.starts_with('/') &&
        std::filesystem::is_regular_file(location.module, error)) {
      modules.push_back(location.module);
    }
  }
  for (const auto& module : modules) {
    std::vector<std::size_t> here;
    std::vector<std::string> command{"addr2line", "-a", "-f", "-i", "-C", "-e", module};
    for (std::size_t i = 0; i < locations.size(); ++i) {
      if (locations[i].module != module) continue;
      here.push_back(i);
      command.push_back(fmt::format("0x{:x}", locations[i].address));
    }
    auto text = try_run_tool(command, deadline);
    if (!text && !deadline.expired()) {
      command[0] = "eu-addr2line";
      text = try_run_tool(command, deadline);
    }
    if (!text) continue;
    auto named = parse_addr2line(*text, here.size());
    for (std::size_t i = 0; i < here.size(); ++i) result[here[i]] = std::move(named[i]);
  }
  return result;
}

}  // namespace lockstep
