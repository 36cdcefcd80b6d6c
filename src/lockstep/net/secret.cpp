#include "lockstep/net/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <optional>
#include <string_view>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/net/cryptography_internal.h"

namespace lockstep {
namespace {

// The file's 64 digits and one byte for the end of the line; wiped on destruction.
struct Digits {
  std::array<char, 2 * Secret::kBytes + 1> text{};

  Digits() = default;
  Digits(const Digits&) = delete;
  Digits& operator=(const Digits&) = delete;
  ~Digits() { wipe(std::as_writable_bytes(std::span(text))); }
};

int digit_value(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

// Reads at most `bytes.size()` bytes from the start of the file without changing its offset.
// Returns how many were read.
std::size_t read_beginning(int descriptor, std::span<std::byte> bytes, std::string_view what) {
  std::size_t count = 0;
  while (count < bytes.size()) {
    const auto more =
        ::pread(descriptor, bytes.data() + count, bytes.size() - count, static_cast<off_t>(count));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) throw SystemError(fmt::format("cannot read {}", what), errno);
    if (more == 0) break;
    count += static_cast<std::size_t>(more);
  }
  return count;
}

void require_private(const struct stat& status, const std::string& path) {
  if (!S_ISREG(status.st_mode)) {
    throw UsageError(fmt::format("secret file {} is not a regular file", path));
  }
  if (status.st_uid != ::geteuid()) {
    throw UsageError(
        fmt::format("secret file {} belongs to user {}, but this process runs as user {}: use a "
                    "file that you own",
                    path, status.st_uid, ::geteuid()));
  }
  if ((status.st_mode & 077) != 0) {
    throw UsageError(
        fmt::format("secret file {} has mode {:04o}, which gives other users access: run "
                    "chmod 600 {}, and create a new secret if others could have read it",
                    path, status.st_mode & 07777, path));
  }
}

[[noreturn]] void refuse_content(const std::string& path) {
  throw UsageError(
      fmt::format("secret file {} must contain exactly 64 hexadecimal digits: create it again with "
                  "openssl rand -hex 32",
                  path));
}

Secret read_file(const FileDescriptor& file, const std::string& path) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) {
    throw SystemError(fmt::format("cannot get the status of secret file {}", path), errno);
  }
  require_private(status, path);
  Digits digits;
  constexpr std::size_t num_digits = 2 * Secret::kBytes;
  const auto count = read_beginning(file.number(), std::as_writable_bytes(std::span(digits.text)),
                                    fmt::format("secret file {}", path));
  const bool has_line_end = count == num_digits + 1 && digits.text[num_digits] == '\n';
  if (count != num_digits && !has_line_end) refuse_content(path);
  if (static_cast<std::size_t>(status.st_size) > num_digits + 1) refuse_content(path);
  std::array<std::byte, Secret::kBytes> bytes{};
  bool all_digits = true;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit_value(digits.text[2 * i]);
    const int low = digit_value(digits.text[2 * i + 1]);
    all_digits = all_digits && high >= 0 && low >= 0;
    bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  if (!all_digits) {
    wipe(bytes);
    refuse_content(path);
  }
  auto secret = Secret::from_bytes(bytes);
  wipe(bytes);
  return secret;
}

// O_NONBLOCK: opening a pipe instead of a file must not block.
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;

std::optional<Secret> try_read(const std::string& path) {
  try {
    return read_file(FileDescriptor::open(path, kReadFlags), path);
  } catch (const SystemError& error) {
    if (error.error_number() != ENOENT) throw;
    return std::nullopt;
  }
}

void make_folders(const std::filesystem::path& folder) {
  if (folder.empty() || ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return;
  if (errno == ENOENT && folder.has_parent_path()) {
    make_folders(folder.parent_path());
    if (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return;
  }
  throw SystemError(fmt::format("cannot create folder {}", folder.string()), errno);
}

void write_digits(const Secret& secret, int descriptor, const std::string& path) {
  constexpr std::string_view alphabet = "0123456789abcdef";
  Digits digits;
  auto out = digits.text.begin();
  for (const auto byte : secret.bytes()) {
    *out++ = alphabet[std::to_integer<unsigned>(byte) >> 4];
    *out++ = alphabet[std::to_integer<unsigned>(byte) & 15u];
  }
  *out = '\n';
  write_all(descriptor, std::as_bytes(std::span(digits.text)), path);
}

// Creates `path` with `secret` atomically: writes it under another name and then links it, which
// fails if `path` exists, also over NFS. Returns false if it exists.
bool try_publish(const Secret& secret, const std::string& path) {
  std::array<std::uint64_t, 1> unique{};
  fill_random(std::as_writable_bytes(std::span(unique)));
  const auto draft = fmt::format("{}.{:016x}.new", path, unique[0]);
  const auto file = FileDescriptor::open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  struct Remove {
    const std::string& path;
    ~Remove() { ::unlink(path.c_str()); }
  } const remove{draft};
  if (::fchmod(file.number(), 0600) != 0) {  // a umask may have cleared even the owner's bits
    throw SystemError(fmt::format("cannot set the mode of {}", draft), errno);
  }
  write_digits(secret, file.number(), draft);
  if (::fsync(file.number()) != 0) throw SystemError(fmt::format("cannot save {}", draft), errno);
  if (::link(draft.c_str(), path.c_str()) == 0) return true;
  if (errno == EEXIST) return false;
  throw SystemError(fmt::format("cannot link {} to {}", draft, path), errno);
}

}  // namespace

Secret Secret::random() {
  auto bytes = allocate();
  fill_random(*bytes);
  return Secret(std::move(bytes));
}

Secret Secret::from_bytes(std::span<const std::byte, kBytes> bytes) {
  auto owned = allocate();
  std::copy(bytes.begin(), bytes.end(), owned->begin());
  return Secret(std::move(owned));
}

Secret Secret::from_descriptor(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != kBytes) {
    throw UsageError(
        fmt::format("descriptor {} does not contain a job's secret: it must be inherited from the "
                    "process that started this one",
                    descriptor));
  }
  auto bytes = allocate();
  const auto count =
      read_beginning(descriptor, *bytes, fmt::format("the secret in descriptor {}", descriptor));
  if (count != kBytes) {
    throw UsageError(fmt::format("descriptor {} contains {} bytes of a secret, expected {}",
                                 descriptor, count, kBytes));
  }
  return Secret(std::move(bytes));
}

Secret Secret::from_file(const std::string& path) {
  return read_file(FileDescriptor::open(path, kReadFlags), path);
}

Secret Secret::create_or_read_file(const std::string& path) {
  if (auto there = try_read(path)) return std::move(*there);
  make_folders(std::filesystem::path(path).parent_path());
  auto secret = random();
  if (try_publish(secret, path)) return secret;
  return from_file(path);  // another process has created it first
}

FileDescriptor Secret::to_descriptor() const {
  FileDescriptor file(::memfd_create("lockstep secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) throw SystemError("cannot create a memfd for the secret", errno);
  write_all(file.number(), bytes(), "a memfd");
  constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (::fcntl(file.number(), F_ADD_SEALS, seals) != 0) {
    throw SystemError("cannot seal the memfd of the secret", errno);
  }
  return file;
}

std::span<const std::byte, Secret::kBytes> Secret::bytes() const noexcept {
  LOCKSTEP_ASSERT(bytes_ != nullptr, "a moved-from secret has no bytes");
  return *bytes_;
}

Secret::Owned Secret::allocate() {
  void* page =
      ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw SystemError("cannot map a page for a secret", errno);
  ::madvise(page, page_bytes(), MADV_DONTDUMP);
  ::madvise(page, page_bytes(), MADV_WIPEONFORK);
  return Owned(new (page) Bytes{});
}

void Secret::Wipe::operator()(Bytes* bytes) const noexcept {
  wipe(*bytes);
  ::munmap(bytes, page_bytes());
}

}  // namespace lockstep
