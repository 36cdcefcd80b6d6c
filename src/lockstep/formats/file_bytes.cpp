#include "lockstep/formats/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

constexpr std::size_t kLargeBytes = std::size_t{1} << 30;

}  // namespace

FileBytes FileBytes::map(const std::string& path) {
  // The file's type is known only after opening. Without these flags, open() would wait for the
  // writer of a pipe, or a terminal would become the controlling terminal.
  const auto file = FileDescriptor::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  struct stat facts {};
  if (::fstat(file.number(), &facts) != 0) {
    throw SystemError(fmt::format("cannot stat {}", path), errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    throw UsageError(fmt::format("{} is not a regular file; give the path of a data file", path));
  }
  const auto size = static_cast<std::size_t>(facts.st_size);
  if (size == 0) return {path, nullptr, {}};  // mmap refuses a length of 0
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number(), 0);
  if (address == MAP_FAILED) throw SystemError(fmt::format("cannot map {}", path), errno);
  if (size > kLargeBytes) ::madvise(address, size, MADV_RANDOM);
  std::shared_ptr<const void> owner(
      address, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); });
  return {path, std::move(owner), {static_cast<const std::byte*>(address), size}};
}

FileBytes FileBytes::of(std::string name, std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> all(*owner);
  return {std::move(name), std::move(owner), all};
}

FileBytes FileBytes::of(std::string name, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return of(std::move(name), std::vector<std::byte>(bytes.begin(), bytes.end()));
}

FileBytes FileBytes::part(std::string name, std::uint64_t offset, std::uint64_t count) const {
  LOCKSTEP_ASSERT(offset <= size() && count <= size() - offset, "a part is within the file");
  return {std::move(name), owner_, bytes_.subspan(offset, count)};
}

void FileBytes::expect_front_to_back() const noexcept {
  if (size() <= kLargeBytes) return;
  // From the start of the first page. Only a hint: errors are ignored.
  constexpr std::uintptr_t page = 1u << 16;  // the largest page in use
  auto* begin = const_cast<std::byte*>(bytes_.data());
  const auto into_page = reinterpret_cast<std::uintptr_t>(begin) % page;
  ::madvise(begin - into_page, bytes_.size() + into_page, MADV_SEQUENTIAL);
}

std::uint64_t FileBytes::data_id() const noexcept {
  constexpr std::uint64_t block = 4096;
  constexpr std::uint64_t num_blocks = 64;
  const auto length = size();
  std::array<std::byte, sizeof length> size_bytes{};
  std::memcpy(size_bytes.data(), &length, sizeof length);
  Digest sum;
  sum.add(0, size_bytes);
  if (length <= block * num_blocks) {
    sum.add(block, bytes_);
    return sum.value();
  }
  // Block k of 64 begins at k/63 of the last block's offset, rounded down to a multiple of 8.
  const std::uint64_t last = length - block;
  for (std::uint64_t k = 0; k < num_blocks; ++k) {
    const auto begin = k + 1 == num_blocks ? last : last / (num_blocks - 1) * k / 8 * 8;
    sum.add((k + 1) * block, bytes_.subspan(begin, block));
  }
  return sum.value();
}

}  // namespace lockstep
