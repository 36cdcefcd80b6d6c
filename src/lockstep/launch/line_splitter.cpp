#include "lockstep/launch/line_splitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep {

void LineSplitter::feed(std::string_view bytes, std::vector<std::string>& lines) {
  for (;;) {
    const auto newline = bytes.find('\n');
    append(bytes.substr(0, newline));
    if (newline == std::string_view::npos) return;
    lines.push_back(release_line());
    bytes.remove_prefix(newline + 1);
  }
}

std::optional<std::string> LineSplitter::finish() {
  if (line_.empty() && cut_ == 0) return std::nullopt;
  return release_line();
}

void LineSplitter::append(std::string_view bytes) {
  // A \r overwrites the line only if text follows it: "\r\n" is a plain line end.
  const auto last = bytes.find_last_not_of('\r');
  if (last == std::string_view::npos) {
    if (!bytes.empty() && !line_.ends_with('\r')) line_ += '\r';
    return;
  }
  const auto overwritten = bytes.find_last_of('\r', last);
  if (overwritten != std::string_view::npos || line_.ends_with('\r')) {
    line_.clear();
    cut_ = 0;
  }
  const auto begin = overwritten == std::string_view::npos ? 0 : overwritten + 1;
  const auto text = bytes.substr(begin, last + 1 - begin);
  const auto kept = text.substr(0, kLongestLine - std::min(line_.size(), kLongestLine));
  line_ += kept;
  cut_ += text.size() - kept.size();
  if (last + 1 < bytes.size()) line_ += '\r';
}

std::string LineSplitter::release_line() {
  auto line = std::exchange(line_, {});
  if (line.ends_with('\r')) line.pop_back();
  if (cut_ > 0) line += fmt::format(" … ({} bytes more in the log)", std::exchange(cut_, 0));
  return line;
}

}  // namespace lockstep
