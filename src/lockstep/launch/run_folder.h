// The folder for all files that lockstep writes about one run: logs/, the end record, metrics and
// checkpoints. A folder belongs to one run: an existing one is refused.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace lockstep {

class RunFolder {
 public:
  /// Creates `path`, its logs/ and missing parents.
  /// Throws UsageError when `path` exists, SystemError when a system call fails.
  [[nodiscard]] static RunFolder create(const std::string& path);

  [[nodiscard]] const std::string& path() const noexcept { return path_; }  // absolute
  [[nodiscard]] std::string logs_path() const { return path_ + "/logs"; }
  [[nodiscard]] std::string end_record_path() const { return path_ + "/end.json"; }
  [[nodiscard]] std::string pages_path() const { return path_ + "/pages"; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

/// "<program>-<time>-<token>", for example "train-20261115T182051Z-4f09c2a1". `program` may be a
/// path; characters that are unusual in a file name become _.
[[nodiscard]] std::string run_name(std::string_view program,
                                   std::chrono::system_clock::time_point now,
                                   std::string_view token);

/// Eight random hexadecimal digits from the kernel. Throws SystemError.
[[nodiscard]] std::string random_token();

/// logs/rank-007.log of the first round, logs/rank-007.restart-2.log of the third.
[[nodiscard]] std::string log_path(const std::string& logs, int rank, int restarts);

}  // namespace lockstep
