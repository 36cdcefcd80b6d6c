// One line a message, rank first, written in one piece so that lines of several ranks never tear:
//   rank 3 | warning: the loader starves the step: …
// Only changes of state are logged. A Log is a value that its owner hands around; there is no
// global one.
#pragma once

#include <optional>
#include <string_view>

namespace lockstep {

enum class LogLevel { debug, info, warning, error };

struct LogOptions {
  std::optional<int> rank = {};     // none: the line starts with "lockstep |"
  LogLevel level = LogLevel::info;  // quieter messages are dropped
  int descriptor = 2;               // borrowed; standard error
};

class Log {
 public:
  explicit Log(LogOptions options = {}) : options_(options) {}

  /// Each writes one line; safe from any thread. Line breaks inside `message` are shown as \n.
  /// A log that cannot be written must not end a training run, so failures to write are ignored.
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
