// What is typed after a verb. The verb declares which arguments it takes, and reading them sets its
// variables; a slip is answered with the nearest option.
//
// Names are written as CLI11 does: "-o,--output" is an option, "files" a positional argument.
// CLI11 is included by arguments.cpp alone: each file that includes it takes 8 s more to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

/// Both ends are allowed.
struct IntRange {
  int smallest = 0;
  int largest = 0;
};

class Arguments {
 public:
  /// `verb` is what follows `lockstep`, such as "data fetch"; messages name it. -h and --help set
  /// `help`.
  Arguments(std::string verb, bool& help);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // Each declares one argument. Its variable outlives this object and keeps its value when the
  // argument is not given. An option given twice is refused.
  void flag(const std::string& names, bool& value);
  void option(const std::string& names, std::string& value);
  void option(const std::string& names, int& value);
  void option(const std::string& names, int& value, IntRange allowed);
  void option(const std::string& names, std::int64_t& value);
  void option(const std::string& names, std::uint64_t& value);
  void option(const std::string& names, double& value);
  void option(const std::string& names, std::vector<std::string>& values);  // one or more words
  void option(const std::string& names, std::vector<int>& values);  // also with commas: 1,2,4

  // These may be given several times, and the last one wins; nullopt means not given. In the names
  // of a flag, an exclamation mark stands before the one that means false: "--plot,!--no-plot".
  void flag(const std::string& names, std::optional<bool>& value);
  void option(const std::string& names, std::optional<std::string>& value);

  /// Reads all `words`. Throws UsageError that names the argument and, for an unknown option, the
  /// nearest one.
  void read(const std::vector<std::string>& words);

  /// Reads the arguments that `words` begin with. Returns the rest, from the first word that was
  /// not declared: for example a program and its own arguments. Throws as read() does.
  [[nodiscard]] std::vector<std::string> read_leading(const std::vector<std::string>& words);

  /// Throws the UsageError for `word`, which is not an option, with the nearest that is.
  [[noreturn]] void refuse(const std::string& word) const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

/// One of `words`, as an index. Throws UsageError that names the option and lists the words, the
/// nearest first.
[[nodiscard]] std::size_t read_choice(std::string_view option, std::string_view text,
                                      const std::vector<std::string_view>& words);

/// `name = text` in a file; inside [section] the name is section.name, and the values of an array
/// are separated by commas.
struct TomlItem {
  std::string name;
  std::string text;
};

/// The items of a file in the style of TOML, in its order. Throws UsageError that begins with
/// `path`.
[[nodiscard]] std::vector<TomlItem> read_toml(std::istream& file, std::string_view path);

}  // namespace lockstep::cli
