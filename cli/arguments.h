// The arguments of a verb. The verb declares its arguments, and reading them sets its variables;
// the error for an unknown option names the nearest known one.
//
// Names are written as CLI11 does: "-o,--output" is an option, "files" a positional argument.
// Only arguments.cpp includes CLI11: each file that includes it takes 8 s more to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

/// Both ends belong to the range.
struct IntRange {
  int smallest = 0;
  int largest = 0;
};

class Arguments {
 public:
  /// `verb` is the word or words after `lockstep`, such as "data fetch", for messages. -h and
  /// --help set `help`.
  Arguments(std::string verb, bool& help);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // Each declares one argument. The variable must outlive this object; it keeps its value when the
  // argument is not given. An option that is given twice is an error.
  void flag(const std::string& names, bool& value);
  void option(const std::string& names, std::string& value);
  void option(const std::string& names, int& value);
  void option(const std::string& names, int& value, IntRange allowed);
  void option(const std::string& names, std::int64_t& value);
  void option(const std::string& names, std::uint64_t& value);
  void option(const std::string& names, double& value);
  void option(const std::string& names, std::vector<std::string>& values);  // one or more words
  void option(const std::string& names, std::vector<int>& values);  // also with commas: 1,2,4

  // These may be given several times; the last value counts, and nullopt means not given. In the
  // names of a flag, an exclamation mark precedes the name that means false: "--plot,!--no-plot".
  void flag(const std::string& names, std::optional<bool>& value);
  void option(const std::string& names, std::optional<std::string>& value);

  /// Sets the explanation of unknown options: `explain` gets the option without its value ("--old")
  /// and returns, for example, its new name ("--old is now --new"), or nullopt.
  void explain_unknown(
      std::function<std::optional<std::string>(const std::string& option)> explain);

  /// Reads all `words`. Throws UsageError that names the argument and, for an unknown option, its
  /// explanation or the nearest known option.
  void read(const std::vector<std::string>& words);

  /// Reads the arguments that `words` begin with. Returns the remaining words, from the first one
  /// that was not declared: for example a program and its own arguments. Throws as read() does.
  [[nodiscard]] std::vector<std::string> read_leading(const std::vector<std::string>& words);

  /// Throws the UsageError for `word`, an unknown option, with the nearest known one.
  [[noreturn]] void refuse(const std::string& word) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

/// The index of `text` in `words`. Throws UsageError that names the option, lists the words and
/// names the nearest one.
[[nodiscard]] std::size_t read_choice(std::string_view option, std::string_view text,
                                      const std::vector<std::string_view>& words);

/// `name = text` in a file. Inside [section] the name is section.name; the values of an array are
/// separated by commas.
struct TomlItem {
  std::string name;
  std::string text;
};

/// The items of a file in the style of TOML, in the order of the file. Throws UsageError that
/// begins with `path`.
[[nodiscard]] std::vector<TomlItem> read_toml(std::istream& file, std::string_view path);

}  // namespace lockstep::cli
