// report.html while a run is active. A process of its own writes it, at the lowest priority of the
// system, and so rarely that it uses less than 0.5 % of one processor. The launcher ends it and
// writes the last page itself. If the launcher is killed, that process writes a last page that says
// so, and ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/base/file_descriptor.h"

namespace lockstep::cli {

class LiveReport {
 public:
  /// Starts the process after `delay`, if this object still exists; a failure to start is ignored:
  /// a run does not depend on its report.
  explicit LiveReport(std::string folder, std::chrono::milliseconds delay = {});
  LiveReport(const LiveReport&) = delete;
  LiveReport& operator=(const LiveReport&) = delete;
  /// Ends the process and writes the page of the ended run.
  ~LiveReport();

 private:
  void start() noexcept;

  std::string folder_;
  FileDescriptor alive_;  // a pipe's end: closed when the launcher ends, for whatever reason
  pid_t process_ = -1;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

/// The interval to the next page when one page took `cost` of processor time: at least 5 s.
[[nodiscard]] std::chrono::seconds next_page_after(std::chrono::nanoseconds cost);

/// The process: writes pages until `alive`, a pipe, ends. Returns its exit code.
[[nodiscard]] int follow_run(const std::string& folder, int alive);

}  // namespace lockstep::cli
