// The environment variables of a process as a value. Only this file reads the process's
// environment; all other code takes an Environment, so that tests can construct one and all parts
// of a program see the same values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class Environment {
 public:
  /// An environment that consists of these variables only.
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables)
      : variables_(variables) {}

  /// A copy of the current environment of this process.
  [[nodiscard]] static Environment of_process();

  /// The value of `name`; nullopt when it is not set. An empty value counts as not set: scripts and
  /// Makefiles often pass variables without a value.
  [[nodiscard]] std::optional<std::string> find(std::string_view name) const;

  /// The same for a variable whose empty value has a meaning, such as CUDA_VISIBLE_DEVICES.
  [[nodiscard]] std::optional<std::string> find_even_empty(std::string_view name) const;

  /// The value of `name` as an integer; nullopt when not set or empty. Accepts decimal digits with
  /// an optional minus sign.
  /// Throws UsageError, naming the variable and its value, when the value is not an integer or does
  /// not fit in 64 bits.
  [[nodiscard]] std::optional<std::int64_t> find_integer(std::string_view name) const;

  /// True for 1, true, yes, on; false for 0, false, no, off and when not set or empty.
  /// Throws UsageError for any other value.
  [[nodiscard]] bool flag(std::string_view name) const;

  /// Sets or replaces a variable in this value. The environment of the process does not change.
  void set(std::string_view name, std::string_view value);
  void remove(std::string_view name);

  /// "NAME=value" strings sorted by name, as execve(2) expects them.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

}  // namespace lockstep
