// Makes the text of a model safe for a terminal, piece by piece. A model can generate any bytes. A
// character that arrives in several pieces is shown once it is complete. Invalid UTF-8 and control
// characters, except line end and tab, are shown as U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

class TerminalText {
 public:
  /// Adds a piece and returns the new text that can be shown.
  [[nodiscard]] std::string add(std::string_view piece);
  /// Returns U+FFFD for a character that is still incomplete, else nothing.
  [[nodiscard]] std::string end();

 private:
  std::string held_;  // the first bytes of an incomplete character
};

}  // namespace lockstep::cli
