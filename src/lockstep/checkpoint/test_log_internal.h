// For tests: a Log whose text can be read.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/log.h"

namespace lockstep {

class TestLog {
 public:
  [[nodiscard]] Log log(int rank) const {
    return Log({.rank = rank, .descriptor = file_.number()});
  }
  [[nodiscard]] std::string text() const {
    std::string all(1U << 20, '\0');
    const auto count = ::pread(file_.number(), all.data(), all.size(), 0);
    all.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return all;
  }

 private:
  FileDescriptor file_{::memfd_create("log", MFD_CLOEXEC)};
};

}  // namespace lockstep
