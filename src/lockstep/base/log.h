// One line per message, rank first, written with one system call so that the lines of several ranks
// do not interleave:
//   rank 3 | warning: training waits for data: …
// Only changes of state are logged. A Log is a value that its owner passes on; there is no global
// one.
#pragma once

#include <optional>
#include <string_view>

namespace lockstep {

enum class LogLevel { debug, info, warning, error };

struct LogOptions {
  std::optional<int> rank = {};     // without one the line starts with "lockstep |"
  LogLevel level = LogLevel::info;  // messages of lower levels are dropped
  int descriptor = 2;               // not owned; 2 is standard error
};

class Log {
 public:
  explicit Log(LogOptions options = {}) : options_(options) {}

  /// Each writes one line; thread-safe. Line breaks inside `message` are shown as \n. Write errors
  /// are ignored, so that a full disk does not end a training run.
  void debug(std::string_view message) const { write(LogLevel::debug, message); }
  void info(std::string_view message) const { write(LogLevel::info, message); }
  void warning(std::string_view message) const { write(LogLevel::warning, message); }
  void error(std::string_view message) const { write(LogLevel::error, message); }

  [[nodiscard]] bool shows(LogLevel level) const noexcept { return level >= options_.level; }

 private:
  void write(LogLevel level, std::string_view message) const;

  LogOptions options_;
};

}  // namespace lockstep
