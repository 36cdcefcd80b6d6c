#include "lockstep/rendezvous/process_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

std::string stat_after_name(pid_t process) {
  const FileDescriptor file(
      ::open(fmt::format("/proc/{}/stat", process).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> buffer{};
  // Reading fails when the process has ended since the file was opened.
  const auto bytes = file.number() < 0 ? -1 : ::read(file.number(), buffer.data(), buffer.size());
  const std::string text(buffer.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  const auto end = text.rfind(") ");  // a program's name may contain spaces and parentheses
  return end == std::string::npos ? "" : text.substr(end + 2);
}

ProcessIdentity ProcessIdentity::of(pid_t process) {
  constexpr int kFieldsBetween = 19;  // of /proc/<pid>/stat, from the state to the start time
  std::istringstream fields(stat_after_name(process));
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  std::int64_t started = 0;
  fields >> started;
  return {process, started};
}

}  // namespace lockstep
