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
  if (!memory_) throw SystemError("cannot make shared memory", errno);
  if (::ftruncate(memory_.number(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory_.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw SystemError(fmt::format("cannot give shared memory its {} bytes", bytes), errno);
  }
  map();
}

SharedMemory::SharedMemory(FileDescriptor memory, std::size_t bytes)
    : memory_(std::move(memory)), bytes_(bytes) {
  struct stat facts {};
  const bool sized =
      ::fstat(memory_.number(), &facts) == 0 && facts.st_size == static_cast<off_t>(bytes);
  const int seals = ::fcntl(memory_.number(), F_GET_SEALS);
  // Touching memory whose file shrinks would end the process.
  if (!sized || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw UsageError(fmt::format("what was received is no shared memory of {} bytes", bytes));
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
  // In one step: no moment in which the address is empty.
  if (::mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, start_ + offset) ==
      MAP_FAILED) {
    throw SystemError("cannot put a private copy in the place of shared memory", errno);
  }
}

void SharedMemory::map() {
  if (bytes_ == 0) return;  // mmap refuses
  void* start = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.number(), 0);
  if (start == MAP_FAILED) throw SystemError("cannot map shared memory", errno);
  // Fewer, larger pages where the system allows them for shared memory; a wish, not a need.
  ::madvise(start, bytes_, MADV_HUGEPAGE);
  start_ = static_cast<std::byte*>(start);
}

std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

}  // namespace lockstep
