// The environment variables of a process as a value. This is the only file of lockstep that reads
// them: everything else takes an Environment, so tests can make one up and no two parts can
// disagree.
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
  /// An environment made up of these variables alone.
  Environment(std::initializer_list<std::pair<const std::string, std::string>> variables)
      : variables_(variables) {}

  /// A copy of what this process was given, as it is now.
  [[nodiscard]] static Environment of_process();

  /// The value of `name`; nothing when it is not set. Set but empty counts as not set: scripts and
  /// Makefiles pass on variables that they have no value for.
  [[nodiscard]] std::optional<std::string> find(std::string_view name) const;

  /// The same for a variable whose empty value has a meaning, as that of CUDA_VISIBLE_DEVICES has.
  [[nodiscard]] std::optional<std::string> find_even_empty(std::string_view name) const;

  /// The value of `name` as a whole number; nothing when not set or empty.
  /// Throws UsageError, naming the variable and its value, for anything but decimal digits with an
  /// optional minus sign that fit 64 bits.
  [[nodiscard]] std::optional<std::int64_t> find_integer(std::string_view name) const;

  /// True for 1, true, yes, on; false for 0, false, no, off and when not set or empty.
  /// Throws UsageError for any other value.
  [[nodiscard]] bool flag(std::string_view name) const;

  /// Sets or replaces a variable in this value; the process's own environment is untouched.
  void set(std::string_view name, std::string_view value);
  void remove(std::string_view name);

  /// "NAME=value" lines in the order of their names, as exec takes them.
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

}  // namespace lockstep
