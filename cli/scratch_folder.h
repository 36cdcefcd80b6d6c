// A temporary folder of a verb, removed at its end.
#pragma once

#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: mkdtemp is not in <cstdlib>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {

class ScratchFolder {
 public:
  explicit ScratchFolder(const Environment& environment)
      : path_(environment.find("TMPDIR").value_or("/tmp") + "/lockstep-bench-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw SystemError(fmt::format("cannot make the folder {}", path_), errno);
    }
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Keeps the folder: the report of a failure names the logs in it.
  void keep() noexcept { keep_ = true; }

 private:
  std::string path_;
  bool keep_ = false;
};

}  // namespace lockstep::cli
