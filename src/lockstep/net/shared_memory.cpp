#include "lockstep/net/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

SharedMemory::SharedMemory(std::size_t bytes)
    : memory_(::memfd_create("lockstep memory", MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
  if (!memory_) throw SystemError("cannot create shared memory", errno);
  if (::ftruncate(memory_.number(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory_.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw SystemError(fmt::format("cannot allocate {} bytes of shared memory", bytes), errno);
  }
  map();
}

SharedMemory::SharedMemory(FileDescriptor memory, std::size_t bytes)
    : memory_(std::move(memory)), bytes_(bytes) {
  struct stat facts {};
  const bool sized =
      ::fstat(memory_.number(), &facts) == 0 && facts.st_size == static_cast<off_t>(bytes);
  const int seals = ::fcntl(memory_.number(), F_GET_SEALS);
  // An access to memory whose file has shrunk would end the process with SIGBUS.
  if (!sized || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw UsageError(
        fmt::format("a received descriptor is not sealed shared memory of {} bytes", bytes));
  }
  map();
}

SharedMemory::~SharedMemory() {
  if (bytes_ > 0) ::munmap(start_, bytes_);
}

void SharedMemory::make_private(std::size_t offset, std::size_t length) {
  if (length == 0) return;
  void* copy = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) throw SystemError("cannot make a private copy of shared memory", errno);
  std::memcpy(copy, start_ + offset, length);
  // One system call: the address is mapped at every moment.
  if (::mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start_ + offset) ==
      MAP_FAILED) {
    throw SystemError("cannot replace shared memory by a private copy", errno);
  }
}

void SharedMemory::map() {
  if (bytes_ == 0) return;  // mmap refuses
  void* start = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.number(), 0);
  if (start == MAP_FAILED) throw SystemError("cannot map shared memory", errno);
  // Requests huge pages where the system allows them for shared memory; a failure does not matter.
  ::madvise(start, bytes_, MADV_HUGEPAGE);
  start_ = static_cast<std::byte*>(start);
}

PrivateView::PrivateView(const SharedMemory& memory, std::size_t offset, std::size_t length) {
  if (length == 0) return;
  void* start = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory.descriptor(),
                       static_cast<off_t>(offset));
  if (start == MAP_FAILED) throw SystemError("cannot map a private view of shared memory", errno);
  bytes_ = {static_cast<std::byte*>(start), length};
}

PrivateView::~PrivateView() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

void PrivateView::forget_writes() noexcept {
  // Frees the copied pages; the next access maps the memory's own.
  if (!bytes_.empty()) ::madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED);
}

std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace lockstep
