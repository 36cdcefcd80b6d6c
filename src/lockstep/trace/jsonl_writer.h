// Writes events as JSON, one object per line. The first line relates the monotonic clock of the
// events to the wall clock, so that the files of several ranks can be aligned:
//   {"format":"lockstep-trace","version":1,"pid":4711,"steady_ns":…,"wall_ns":…}
//   {"span":"backward","thread":4711,"begin_ns":…,"duration_ns":…}
//   {"counter":"samples","thread":4711,"at_ns":…,"value":64}
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/trace/sink.h"

namespace lockstep {

class JsonlWriter final : public TraceSink {
 public:
  /// Creates or truncates `path` and writes the first line. Throws SystemError.
  explicit JsonlWriter(std::string path);
  /// Writes the buffered events. Does not report a failure: call flush() first to detect it.
  ~JsonlWriter() override;

  void record(const TraceSpan& span) noexcept override;
  void record(const TraceCounter& counter) noexcept override;

  /// Writes all events recorded so far. Throws SystemError if this or an earlier write failed.
  /// After a failure nothing more is written, so that the file never has a gap.
  void flush();

 private:
  void append(const std::string& line) noexcept;
  void write_buffer() noexcept;  // with mutex_ held

  const std::string path_;
  FileDescriptor file_;
  std::mutex mutex_;
  std::string buffer_;                  // mutex_; whole lines
  std::optional<SystemError> failure_;  // mutex_; the first failure
};

}  // namespace lockstep
