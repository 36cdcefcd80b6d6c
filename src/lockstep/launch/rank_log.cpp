#include "lockstep/launch/rank_log.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <span>
#include <utility>

#include "lockstep/launch/live_line.h"

namespace lockstep {
namespace {

// A line of the stack that LibTorch prints with an error.
bool is_frame(std::string_view line) { return line.starts_with("frame #"); }

}  // namespace

RankLog::RankLog(std::string path) : path_(std::move(path)) {
  try {
    file_ = FileDescriptor::open(path_, O_WRONLY | O_CREAT | O_EXCL);
  } catch (const SystemError& error) {
    if (error.error_number() == EEXIST) throw;
    failure_ = error;
  }
}

std::vector<std::string> RankLog::append(OutputStream stream, std::string_view bytes) {
  Stream& here = stream_of(stream);
  const auto newline = bytes.rfind('\n');
  if (newline == std::string_view::npos) {
    here.kept_back += bytes;
  } else {
    write_lines(std::exchange(here.kept_back, {}).append(bytes.substr(0, newline + 1)));
    here.kept_back = bytes.substr(newline + 1);
  }
  if (here.kept_back.size() > kMostKeptBack) {
    write(here.kept_back);
    here.kept_back.clear();
  }

  std::vector<std::string> lines;
  here.splitter.feed(bytes, lines);
  std::erase_if(lines, [this](const std::string& line) {
    const auto live = try_live_text(line);
    if (live) live_ = *live;
    return live.has_value();
  });
  std::size_t first = lines.size();
  for (std::size_t kept = 0; first > 0 && kept < kLastLines;) kept += !is_frame(lines[--first]);
  for (const auto& line : lines) note_uncaught(line);
  for (std::size_t i = first; i < lines.size(); ++i) remember(lines[i]);
  return lines;
}

std::optional<std::string> RankLog::release_live() {
  auto live = std::move(live_);
  live_.reset();
  return live;
}

void RankLog::flush() {
  for (Stream& stream : streams_) {
    if (!stream.kept_back.empty()) write(std::exchange(stream.kept_back, {}));
  }
}

std::optional<std::string> RankLog::finish(OutputStream stream) {
  Stream& here = stream_of(stream);
  if (!here.kept_back.empty()) write(std::exchange(here.kept_back, {}));
  auto line = here.splitter.finish();
  if (line) {
    note_uncaught(*line);
    remember(*line);
  }
  return line;
}

// `bytes` ends with a newline.
void RankLog::write_lines(std::string_view bytes) {
  while (!bytes.empty()) {
    // All lines up to the next live line are written together.
    std::size_t end = 0;
    std::size_t after = 0;
    while (after < bytes.size() && end == after) {
      after = bytes.find('\n', end) + 1;
      if (!try_live_text(bytes.substr(end, after - 1 - end))) end = after;
    }
    if (end > 0) write(bytes.substr(0, end));
    bytes.remove_prefix(after);
  }
}

void RankLog::write(std::string_view bytes) {
  if (failure_) {  // writing again after a gap would hide the gap
    lost_bytes_ += bytes.size();
    return;
  }
  try {
    write_all(file_.number(), std::as_bytes(std::span(bytes)), path_);
  } catch (const SystemError& error) {
    failure_ = error;
    lost_bytes_ += bytes.size();
  }
}

void RankLog::remember(const std::string& line) {
  if (is_frame(line)) {
    if (frames_++ > 0) last_.pop_back();
    last_.push_back(fmt::format("({} frame{} of LibTorch's stack: see the log)", frames_,
                                frames_ == 1 ? "" : "s"));
    if (last_.size() > kLastLines) last_.pop_front();
    return;
  }
  frames_ = 0;
  last_.push_back(line);
  if (last_.size() > kLastLines) last_.pop_front();
}

// The C++ runtime prints two lines: the type of the exception, and its what().
void RankLog::note_uncaught(const std::string& line) {
  constexpr std::string_view kType = "terminate called after throwing an instance of '";
  constexpr std::string_view kMessage = "  what():  ";
  if (line.starts_with(kType)) {
    uncaught_type_ = line.substr(kType.size(), line.rfind('\'') - kType.size());
    uncaught_ = fmt::format("an exception of type {}", uncaught_type_);
  } else if (line.starts_with(kMessage) && !uncaught_type_.empty()) {
    uncaught_ = fmt::format("{} ({})", line.substr(kMessage.size()), uncaught_type_);
    uncaught_type_.clear();
  }
}

}  // namespace lockstep
