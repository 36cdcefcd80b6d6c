// For tests. When and as which process a rank has killed itself, in a file that all ranks find by
// their parent's pid. The steady clock is the same in all processes of a host.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {

struct KillRecord {
  std::int64_t nanoseconds = 0;
  pid_t process = 0;

  /// `number` tells apart the kills of one run.
  [[nodiscard]] static std::string path(int number = 0, pid_t parent = ::getppid()) {
    return std::filesystem::temp_directory_path() /
           ("lockstep-kill-" + std::to_string(parent) + "-" + std::to_string(number));
  }
  static void write_and_die(int number = 0) {
    const KillRecord record{now(), ::getpid()};
    std::ofstream(path(number), std::ios::binary)
        .write(reinterpret_cast<const char*>(&record), sizeof(record));
    ::kill(::getpid(), SIGKILL);
  }
  [[nodiscard]] static KillRecord read(int number = 0) {
    KillRecord record;
    std::ifstream(path(number), std::ios::binary)
        .read(reinterpret_cast<char*>(&record), sizeof(record));
    return record;
  }
  /// For the parent, when the run has ended.
  static void remove(int number = 0) { std::filesystem::remove(path(number, ::getpid())); }

  /// For a survivor: prints the time since the kill, and the error that names the victim.
  void print_detection(const std::string& error) const {
    const auto seconds = static_cast<double>(now() - nanoseconds) / 1e9;
    ::printf("detected after %.3f s: %s\n", seconds, error.c_str());
  }
  /// For the parent: the longest time in a survivor's output, in seconds.
  [[nodiscard]] static double longest_detection(const std::string& output) {
    const std::string words = "detected after ";
    double longest = 0;
    for (auto at = output.find(words); at != std::string::npos; at = output.find(words, at + 1)) {
      longest = std::max(longest, std::strtod(output.c_str() + at + words.size(), nullptr));
    }
    return longest;
  }

 private:
  static std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace lockstep
