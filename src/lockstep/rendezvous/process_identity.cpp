#include "lockstep/rendezvous/process_identity.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace lockstep {

ProcessIdentity ProcessIdentity::of(pid_t process) {
  constexpr int kFieldsBetween =
      19;  // of /proc/<pid>/stat, from the state to the time of the start
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto end = text.rfind(") ");  // a program's name may hold spaces and brackets
  if (end == std::string::npos) return {process, 0};
  std::istringstream fields(text.substr(end + 2));
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  std::int64_t started = 0;
  fields >> started;
  return {process, started};
}

}  // namespace lockstep
