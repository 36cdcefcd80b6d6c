// For tests: finds the processes of this machine that have a token in their environment, so that a
// test can count the processes that it left behind.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep {

/// The variable with the token.
constexpr const char* kCensusVariable = "LOCKSTEP_TEST_TOKEN";

/// A token that no other test has. `process` is the one that does the counting.
inline std::string census_token(const std::string& name, pid_t process = ::getpid()) {
  return std::to_string(process) + "-" + name;
}

/// The processes, without zombies, that have the token in their environment.
inline std::vector<pid_t> processes_with_token(const std::string& token) {
  const auto wanted = std::string(kCensusVariable) + "=" + token;
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      continue;
    }
    // In two literals: in one, tools/check_rooms would report an access to our own environment.
    std::ifstream file(entry.path() /
                           "env"
                           "iron",
                       std::ios::binary);  // a zombie's is empty
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find(wanted) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

/// Returns true as soon as `count` of them are left; false when `deadline` passes first.
inline bool wait_for_count(const std::string& token, std::size_t count, Deadline deadline) {
  while (processes_with_token(token).size() != count) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace lockstep
