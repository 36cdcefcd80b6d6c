#include "lockstep/base/file_descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    number_ = other.release();
  }
  return *this;
}

FileDescriptor FileDescriptor::open(const std::string& path, int flags, unsigned mode) {
  int number = -1;
  do {
    number = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (number < 0 && errno == EINTR);
  if (number < 0) throw SystemError(fmt::format("cannot open {}", path), errno);
  return FileDescriptor(number);
}

FileDescriptor FileDescriptor::duplicate() const {
  const int number = ::fcntl(number_, F_DUPFD_CLOEXEC, 0);
  if (number < 0) throw SystemError(fmt::format("cannot duplicate descriptor {}", number_), errno);
  return FileDescriptor(number);
}

void FileDescriptor::reset() noexcept {
  // Not retried on EINTR: Linux has already released the number, and another thread may own it.
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& what) {
  while (!bytes.empty()) {
    const auto written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      throw SystemError(fmt::format("cannot write {} bytes to {}", bytes.size(), what), errno);
    }
  }
}

std::uint64_t raise_descriptor_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const auto before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

void keep_standard_descriptors() noexcept {
  for (int number = 0; number < 3; ++number) {
    // open(2) returns the lowest free number: this one, since the lower ones are open.
    if (::fcntl(number, F_GETFD) < 0) (void)::open("/dev/null", number == 0 ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace lockstep
