#include "lockstep/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

constexpr std::string_view kHost = "host ";
constexpr std::string_view kProcess = " process ";

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') return "unknown";
  return name.data();
}

bool is_host_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
}

// Converts "host alpha process 41\n" to "process 41 on host alpha". The bytes are untrusted.
std::string owner_in(std::string_view text) {
  constexpr char unknown[] = "unknown process";
  if (!text.starts_with(kHost)) return unknown;
  text.remove_prefix(kHost.size());
  const auto end = text.find(kProcess);
  if (end == std::string_view::npos) return unknown;
  const auto host = text.substr(0, end);
  if (host.empty() || !std::ranges::all_of(host, is_host_character)) return unknown;
  const auto digits = text.substr(end + kProcess.size());
  long process = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), process);
  if (parsed.ec != std::errc()) return unknown;
  return fmt::format("process {} on host {}", process, host);
}

std::string read_owner(const FileDescriptor& file) {
  std::array<char, 512> text{};
  const auto count = ::pread(file.number(), text.data(), text.size(), 0);
  return owner_in({text.data(), count > 0 ? static_cast<std::size_t>(count) : 0});
}

// Only for messages: an error here does not affect the lock.
void write_owner(const FileDescriptor& file) {
  const auto text = fmt::format("{}{}{}{}\n", kHost, host_name(), kProcess, ::getpid());
  if (::ftruncate(file.number(), 0) == 0) {
    (void)!::pwrite(file.number(), text.data(), text.size(), 0);
  }
}

bool has_no_locks(int error) {
  return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

}  // namespace

FolderLock lock_folder(const std::string& folder) {
  const auto path = folder + "/" + kLockName;
  auto file = FileDescriptor::open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) {
    throw SystemError(fmt::format("cannot stat {}", path), errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    throw UsageError(fmt::format("{} is not a regular file; remove it", path));
  }
  struct flock all {};  // the whole file
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  std::string missing;
  if (::fcntl(file.number(), F_OFD_SETLK, &all) != 0) {
    const int error = errno;
    if (error == EAGAIN || error == EACCES) return {.owner = read_owner(file)};
    if (!has_no_locks(error)) throw SystemError(fmt::format("cannot lock {}", path), error);
    missing = SystemError(fmt::format("cannot lock {}", path), error).what();
  }
  write_owner(file);
  return {std::make_shared<const FileDescriptor>(std::move(file)), {}, std::move(missing)};
}

}  // namespace lockstep
