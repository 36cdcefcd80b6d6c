// An owned file descriptor, and complete writes to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace lockstep {

class FileDescriptor {
 public:
  FileDescriptor() noexcept = default;
  /// Takes ownership of `number`; a negative number is an empty FileDescriptor.
  explicit FileDescriptor(int number) noexcept : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  /// Opens `path` as open(2) does, always close-on-exec. Throws SystemError naming the path.
  [[nodiscard]] static FileDescriptor open(const std::string& path, int flags,
                                           unsigned mode = 0644);

  /// Returns a second descriptor for the same open file, close-on-exec. Throws SystemError.
  [[nodiscard]] FileDescriptor duplicate() const;

  /// Closes the descriptor now.
  void reset() noexcept;
  /// Releases ownership; the caller closes the number.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  explicit operator bool() const noexcept { return is_open(); }

 private:
  int number_ = -1;
};

/// Writes all of `bytes` to a blocking descriptor, in as many calls of write(2) as needed.
/// Throws SystemError, in which `what` names the target.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& what);

/// Raises this process's soft limit of open descriptors to the hard limit. Returns the old limit.
std::uint64_t raise_descriptor_limit() noexcept;

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that no file opened
/// later gets that number and receives printed text. Call it before any file is opened.
void keep_standard_descriptors() noexcept;

}  // namespace lockstep
