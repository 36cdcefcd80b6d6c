// Reads a verb's arguments with CLI11, and answers a slip with the nearest option.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// Reads `arguments` into what `app` has declared. Throws UsageError that names the argument and,
/// for an unknown option, the nearest one; `verb` is the command it points to for help.
void read_arguments(CLI::App& app, std::string_view verb,
                    const std::vector<std::string>& arguments);

/// Throws the UsageError for `word`, which is no option of `verb`, with the nearest that is.
[[noreturn]] void refuse_option(const CLI::App& app, std::string_view verb,
                                const std::string& word);

/// One of `words`, as an index. Throws UsageError that names the option and lists the words, the
/// nearest first.
[[nodiscard]] std::size_t read_choice(std::string_view option, std::string_view text,
                                      const std::vector<std::string_view>& words);

}  // namespace lockstep::cli
