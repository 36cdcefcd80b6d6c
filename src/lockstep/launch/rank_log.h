// The whole output of one rank in one file, in the order it arrived, and its last lines; live lines
// (live_line.h) are for a terminal and are not in it. Standard
// output and standard error are two streams: a line that one has begun is kept back for a moment,
// so that the other's does not land inside it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/line_splitter.h"

namespace lockstep {

enum class OutputStream { standard_output, standard_error };

class RankLog {
 public:
  /// The last lines do not hold the stack that LibTorch prints below an error's message, only how
  /// many frames it has.
  static constexpr std::size_t kLastLines = 20;
  static constexpr std::size_t kMostKeptBack = 64u << 10;

  /// Makes the file `path`. Throws SystemError when it exists, because a log is never mixed with
  /// another run's. Another failure to make it is the first of the failures that `take` tells of.
  explicit RankLog(std::string path);

  /// Appends `bytes` to the file and returns the lines they complete.
  /// The rank must not die of a full disk: the first failure to write is kept for `failure`, and
  /// what could not be written is counted.
  [[nodiscard]] std::vector<std::string> take(OutputStream stream, std::string_view bytes);
  /// The newest live line that came since the last call, if one did.
  [[nodiscard]] std::optional<std::string> release_live();
  /// Writes what was kept back. Call it about once a second.
  void flush();
  /// The stream has ended: returns its last line if that had no newline.
  [[nodiscard]] std::optional<std::string> finish(OutputStream stream);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }
  /// What the program's runtime said of an uncaught exception: its message and its type, as in
  /// "mat1 and mat2 must have the same dtype (c10::Error)". Empty: it said nothing.
  [[nodiscard]] const std::string& uncaught() const noexcept { return uncaught_; }
  [[nodiscard]] const std::optional<SystemError>& failure() const noexcept { return failure_; }
  [[nodiscard]] std::uint64_t lost_bytes() const noexcept { return lost_bytes_; }

 private:
  struct Stream {
    std::string kept_back;
    LineSplitter splitter;
  };

  Stream& stream_of(OutputStream stream) { return streams_[static_cast<std::size_t>(stream)]; }
  void write_lines(std::string_view bytes);
  void write(std::string_view bytes);
  void remember(const std::string& line);
  void note_uncaught(const std::string& line);

  const std::string path_;
  FileDescriptor file_;
  std::array<Stream, 2> streams_;
  std::deque<std::string> last_;
  std::size_t frames_ = 0;  // of LibTorch's stack; the last of last_ stands for them
  std::string uncaught_;
  std::string uncaught_type_;  // its message is expected next
  std::optional<std::string> live_;
  std::optional<SystemError> failure_;
  std::uint64_t lost_bytes_ = 0;
};

}  // namespace lockstep
