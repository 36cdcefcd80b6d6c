// Memory that several processes have mapped, without a name anywhere: a sealed memfd. The kernel
// frees it with the last process that has it, however that one ends.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class SharedMemory {
 public:
  /// New memory, all zero. Throws SystemError.
  explicit SharedMemory(std::size_t bytes);
  /// What another process made. Throws UsageError unless it is `bytes` long and can never shrink,
  /// SystemError when it cannot be mapped.
  SharedMemory(FileDescriptor memory, std::size_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Replaces [offset, offset + length), both whole pages, by a private copy at the same address:
  /// what others write there afterwards is not seen here any more. Throws SystemError.
  void make_private(std::size_t offset, std::size_t length);

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {start_, bytes_}; }
  /// For handing on.
  [[nodiscard]] int descriptor() const noexcept { return memory_.number(); }
  /// Nobody else will be given it. The mapping stays.
  void close_descriptor() noexcept { memory_.reset(); }

 private:
  void map();

  FileDescriptor memory_;
  std::size_t bytes_;
  std::byte* start_ = nullptr;
};

[[nodiscard]] std::size_t page_bytes() noexcept;
/// `bytes` rounded up to whole pages.
[[nodiscard]] std::size_t whole_pages(std::size_t bytes) noexcept;

}  // namespace lockstep
