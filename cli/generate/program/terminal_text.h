// Text of a model for a terminal, piece by piece. A model may write any bytes: a character that
// comes in two pieces is shown when it is whole, and what is no UTF-8 or would be obeyed by the
// terminal instead of shown (control characters but line end and tab) is shown as U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

class TerminalText {
 public:
  /// What can be shown of all pieces so far and was not given before.
  [[nodiscard]] std::string add(std::string_view piece);
  /// The rest: of a character that never became whole.
  [[nodiscard]] std::string end();

 private:
  std::string held_;  // the first bytes of a character
};

}  // namespace lockstep::cli
