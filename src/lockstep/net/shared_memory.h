// Memory that several processes map: a sealed memfd, which has no name in a file system. The kernel
// frees it when the last process that has it ends, in whatever way.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class SharedMemory {
 public:
  /// Allocates new memory, filled with zeros. Throws SystemError.
  explicit SharedMemory(std::size_t bytes);
  /// Maps the memory that another process allocated. Throws UsageError unless it is `bytes` long
  /// and sealed against shrinking; SystemError when mapping fails.
  SharedMemory(FileDescriptor memory, std::size_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Replaces [offset, offset + length), both multiples of the page size, by a private copy at the
  /// same address: later writes of other processes are not visible here. Throws SystemError.
  void make_private(std::size_t offset, std::size_t length);

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {start_, bytes_}; }
  /// The descriptor to send to other processes.
  [[nodiscard]] int descriptor() const noexcept { return memory_.number(); }

 private:
  void map();

  FileDescriptor memory_;
  std::size_t bytes_;
  std::byte* start_ = nullptr;
};

/// A second mapping of shared memory. Reads see what any process writes there; a write changes the
/// page in this process only, which no longer sees writes of others there.
class PrivateView {
 public:
  /// Maps [offset, offset + length), both multiples of the page size. Throws SystemError.
  PrivateView(const SharedMemory& memory, std::size_t offset, std::size_t length);
  PrivateView(const PrivateView&) = delete;
  PrivateView& operator=(const PrivateView&) = delete;
  ~PrivateView();

  /// Drops what was written to the view: all of it shows the shared memory again.
  void forget_writes() noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

[[nodiscard]] std::size_t page_bytes() noexcept;
/// `bytes` rounded up to whole pages.
[[nodiscard]] std::size_t whole_pages(std::size_t bytes) noexcept;

}  // namespace lockstep
