// The complete output of one rank in one file, in the order of arrival, and its last lines. Live
// lines (live_line.h) are for a terminal and are not in the file. Standard output and standard
// error are two streams: an incomplete line of one is held back for a moment, so that a line of the
// other does not appear inside it.
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
  /// The last lines omit the stack that LibTorch prints below the message of an error; one line
  /// gives the number of its frames.
  static constexpr std::size_t kLastLines = 20;
  static constexpr std::size_t kMostKeptBack = 64u << 10;

  /// Creates the file `path`. Throws SystemError when it exists, because a log never contains the
  /// output of two runs. Any other error to create it is reported by failure().
  explicit RankLog(std::string path);

  /// Appends `bytes` to the file and returns the lines that they complete.
  /// A full disk must not end the rank: the first write error is kept for failure(), and the bytes
  /// that are not written are counted.
  [[nodiscard]] std::vector<std::string> append(OutputStream stream, std::string_view bytes);
  /// The newest live line since the last call; nullopt without one.
  [[nodiscard]] std::optional<std::string> release_live();
  /// Writes the lines that are held back. Call it about once per second.
  void flush();
  /// The stream has ended: returns its last line if that had no newline.
  [[nodiscard]] std::optional<std::string> finish(OutputStream stream);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::vector<std::string> last_lines() const { return {last_.begin(), last_.end()}; }
  /// The message and type of an uncaught exception, as printed by the C++ runtime, for example
  /// "mat1 and mat2 must have the same dtype (c10::Error)". Empty without one.
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
  std::size_t frames_ = 0;  // of LibTorch's stack, which the last line of last_ represents
  std::string uncaught_;
  std::string uncaught_type_;  // set until the line with the message arrives
  std::optional<std::string> live_;
  std::optional<SystemError> failure_;
  std::uint64_t lost_bytes_ = 0;
};

}  // namespace lockstep
