// An open file descriptor that closes itself, and whole writes to one.
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

  /// A second descriptor for the same open file, close-on-exec. Throws SystemError.
  [[nodiscard]] FileDescriptor duplicate() const;

  /// Closes now.
  void reset() noexcept;
  /// Gives the number away; the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }
  explicit operator bool() const noexcept { return is_open(); }

 private:
  int number_ = -1;
};

/// Writes all of `bytes` to a blocking descriptor, however many calls that takes.
/// `what` names the target in the SystemError thrown on failure.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& what);

/// Raises this process's soft limit of open descriptors to the hard one, and returns what it was.
std::uint64_t raise_descriptor_limit() noexcept;

/// Opens /dev/null in the place of each of 0, 1 and 2 that is closed, so that no other file takes
/// the number and receives what is printed. Call it before anything is opened.
void keep_standard_descriptors() noexcept;

}  // namespace lockstep
