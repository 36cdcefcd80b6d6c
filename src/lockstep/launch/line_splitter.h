// Cuts a stream of bytes into the lines that a person sees. A line ends with \n. What stands before
// the last \r of a line was overwritten (progress bars) and is left out. A line longer than the
// limit is cut, and says so: memory stays bounded whatever a program prints.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class LineSplitter {
 public:
  static constexpr std::size_t kLongestLine = 4096;

  /// Appends to `lines` those that `bytes` completes.
  void feed(std::string_view bytes, std::vector<std::string>& lines);

  /// The end of the stream: what was written of a last line without \n, if anything.
  [[nodiscard]] std::optional<std::string> finish();

 private:
  void append(std::string_view bytes);
  [[nodiscard]] std::string take();

  std::string line_;     // the line so far, at most kLongestLine bytes and a \r
  std::size_t cut_ = 0;  // bytes of it that were left out
};

}  // namespace lockstep
