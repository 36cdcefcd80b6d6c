#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/machine/json_reader_internal.h"

namespace lockstep {

std::string read_regular_file(const std::string& path) {
  constexpr std::size_t kMostFileBytes = std::size_t{4} << 20U;
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const auto file = FileDescriptor::open(path, O_RDONLY | O_NONBLOCK);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) {
    throw SystemError(fmt::format("cannot stat {}", path), errno);
  }
  if (!S_ISREG(facts.st_mode)) throw UsageError(fmt::format("{} is not a regular file", path));
  std::string text;
  std::array<char, 1 << 14> buffer{};
  for (;;) {
    const auto count = ::read(file.number(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError(fmt::format("cannot read {}", path), errno);
    if (count == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > kMostFileBytes) {
      throw UsageError(fmt::format("{} exceeds 4 MiB", path));
    }
  }
  return text;
}

}  // namespace lockstep
