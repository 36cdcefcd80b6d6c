// Splits a stream of bytes into the lines that a person sees. A line ends with \n. Text before the
// last \r of a line was overwritten (progress bars) and is omitted. A line longer than the limit is
// cut and marked as such: memory stays bounded whatever a program prints.
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

  /// Appends the lines that `bytes` completes to `lines`.
  void feed(std::string_view bytes, std::vector<std::string>& lines);

  /// The stream has ended: returns its last line if that had no \n.
  [[nodiscard]] std::optional<std::string> finish();

 private:
  void append(std::string_view bytes);
  [[nodiscard]] std::string release_line();

  std::string line_;     // the line so far, at most kLongestLine bytes and a \r
  std::size_t cut_ = 0;  // bytes of the line that were omitted
};

}  // namespace lockstep
