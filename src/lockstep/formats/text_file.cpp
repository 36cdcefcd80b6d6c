#include "lockstep/formats/text_file.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The end of a line without its LF or CRLF, and the beginning of the next line.
struct Line {
  std::uint64_t end;
  std::uint64_t next;
};

Line line_at(std::string_view text, std::uint64_t begin) {
  const auto feed = text.find('\n', begin);
  if (feed == std::string_view::npos) return {text.size(), text.size()};
  const bool carriage = feed > begin && text[feed - 1] == '\r';
  return {carriage ? feed - 1 : feed, feed + 1};
}

}  // namespace

TextFile::TextFile(FileBytes file, const TextOptions& options) : file_(std::move(file)) {
  file_.expect_front_to_back();
  switch (options.documents) {
    case DocumentBreak::whole_file:
      if (file_.size() > 0) documents_.push_back({0, file_.size()});
      break;
    case DocumentBreak::line:
      find_lines();
      break;
    case DocumentBreak::blank_line:
      find_paragraphs();
      break;
    case DocumentBreak::marker:
      find_between(options.marker);
      break;
  }
}

void TextFile::find_lines() {
  const auto text = file_.text();
  for (std::uint64_t at = 0; at < text.size();) {
    const auto line = line_at(text, at);
    if (line.end > at) documents_.push_back({at, line.end});
    at = line.next;
  }
}

void TextFile::find_paragraphs() {
  const auto text = file_.text();
  bool open = false;
  for (std::uint64_t at = 0; at < text.size();) {
    const auto line = line_at(text, at);
    if (line.end == at) {
      open = false;
    } else if (open) {
      documents_.back().end = line.end;
    } else {
      documents_.push_back({at, line.end});
      open = true;
    }
    at = line.next;
  }
}

void TextFile::find_between(std::string_view marker) {
  if (marker.empty()) {
    throw UsageError("the marker between documents is empty; give the text that separates them");
  }
  const auto text = file_.text();
  for (std::uint64_t at = 0; at <= text.size();) {
    const auto found = std::min(text.find(marker, at), text.size());
    if (found > at) documents_.push_back({at, found});
    at = found + marker.size();
  }
}

}  // namespace lockstep
