#include "lockstep/trace/run_pages.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/whole_file.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kMagic = 0x3130'6567'6170'6b6c;  // "lkpage01"
constexpr int kMostRanks = 1 << 16;

using Number = RankPage::Words::Number;

std::uint64_t get(const Number& word) { return word.load(std::memory_order_relaxed); }
void put(Number& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }

std::size_t bytes_of(int size) { return (static_cast<std::size_t>(size) + 1) * RankPage::kBytes; }

// A page copied word by word, as other processes may write to it.
constexpr std::size_t kWords = sizeof(RankPage::Words) / sizeof(std::uint64_t);
using Copy = std::array<std::uint64_t, kWords>;

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): a page consists of these words
Number* words_in(RankPage::Words& page) { return reinterpret_cast<Number*>(&page); }

// The times of a page, which depend on the clock of its host.
template <typename Words>
auto times_of(Words& page) {
  return std::array{&page.since, &page.step_since, &page.first_since, &page.call_since};
}

}  // namespace

struct RunPages::Header {
  Number magic;
  Number size;
  Number round;
  Number launcher;  // its pid
  Number started;   // wall clock, nanoseconds
  Number left_at;   // nanoseconds_now() of leave(); 0: the run has not ended
  Number command[128];
};

RunPages::RunPages(int size, std::string_view command)
    : memory_(::memfd_create(kMemoryName, MFD_CLOEXEC | MFD_ALLOW_SEALING)), size_(size) {
  if (!memory_) throw SystemError("cannot create a memfd for the pages of the ranks", errno);
  if (::ftruncate(memory_.number(), static_cast<off_t>(bytes_of(size))) != 0 ||
      ::fcntl(memory_.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    throw SystemError("cannot allocate the pages of the ranks", errno);
  }
  map(/*writable=*/true);
  auto& head = header();
  put(head.size, static_cast<std::uint64_t>(size));
  put(head.launcher, static_cast<std::uint64_t>(::getpid()));
  put(head.started,
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count()));
  RankPage::store_text(head.command, command);
  head.magic.store(kMagic, std::memory_order_release);
}

RunPages::RunPages(const FileDescriptor& memory) : memory_(memory.duplicate()) {
  map(/*writable=*/true);
}

RunState RunPages::read(const std::string& path) {
  RunPages pages;
  pages.memory_ = FileDescriptor::open(path, O_RDONLY);
  pages.map(/*writable=*/false);
  return pages.state();
}

// Sealed memory is mapped. A file could be truncated while it is mapped, so it is read.
void RunPages::map(bool writable) {
  struct stat status {};
  if (::fstat(memory_.number(), &status) != 0) throw SystemError("cannot read pages", errno);
  const auto length = static_cast<std::size_t>(status.st_size);
  const bool fits = length % RankPage::kBytes == 0 && length >= 2 * RankPage::kBytes &&
                    length <= bytes_of(kMostRanks);
  if (!S_ISREG(status.st_mode) || !fits) {
    throw UsageError(fmt::format("{} bytes are not the pages of a run's ranks", length));
  }
  const int seals = ::fcntl(memory_.number(), F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) {
    void* start = ::mmap(nullptr, length, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                         memory_.number(), 0);
    if (start == MAP_FAILED) throw SystemError("cannot map the pages of the ranks", errno);
    bytes_.reset(static_cast<std::byte*>(start),
                 [length](std::byte* mapped) { ::munmap(mapped, length); });
  } else {
    bytes_.reset(static_cast<std::byte*>(::operator new (length, std::align_val_t{64})),
                 [](std::byte* held) { ::operator delete (held, std::align_val_t{64}); });
    const auto count = ::pread(memory_.number(), bytes_.get(), length, 0);
    if (count < 0) throw SystemError("cannot read the pages of the ranks", errno);
    if (static_cast<std::size_t>(count) != length) {
      throw UsageError("the pages of the ranks are incomplete");
    }
  }
  if (size_ == 0 && (header().magic.load(std::memory_order_acquire) != kMagic ||
                     bytes_of(static_cast<int>(get(header().size) % kMostRanks)) != length)) {
    throw UsageError("the contents are not the pages of a run's ranks");
  }
  size_ = static_cast<int>(length / RankPage::kBytes) - 1;
}

RunPages::Header& RunPages::header() const noexcept {
  static_assert(sizeof(Header) <= RankPage::kBytes);
  return *reinterpret_cast<Header*>(bytes_.get());
}

RankPage::Words& RunPages::words(int rank) const noexcept {
  return *reinterpret_cast<RankPage::Words*>(bytes_.get() + bytes_of(rank));
}

RankPage RunPages::page(int rank) const {
  if (rank < 0 || rank >= size_) {
    throw UsageError(fmt::format("rank {} has no page in a run of {} ranks", rank, size_));
  }
  return {words(rank), bytes_};
}

RunState RunPages::state() const {
  const auto& head = header();
  RunState state;
  for (const auto& word : head.command) {
    const auto value = get(word);
    std::array<char, 8> letters{};
    std::memcpy(letters.data(), &value, letters.size());
    state.command.append(letters.data(), ::strnlen(letters.data(), letters.size()));
  }
  state.round = static_cast<int>(get(head.round));
  state.launcher = static_cast<int>(get(head.launcher));
  state.started = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(get(head.started))));
  state.has_ended = get(head.left_at) != 0;
  for (int rank = 0; rank < size_; ++rank) state.ranks.push_back(state_of(rank));
  return state;
}

RankState RunPages::state_of(int rank) const {
  const auto left_at = static_cast<std::int64_t>(get(header().left_at));
  return read_page(words(rank), rank, left_at != 0 ? left_at : RankPage::nanoseconds_now());
}

void RunPages::begin_round(int round) noexcept {
  put(header().round, static_cast<std::uint64_t>(round));
  for (int rank = 0; rank < size_; ++rank) {
    std::memset(bytes_.get() + bytes_of(rank), 0, RankPage::kBytes);
  }
}

void RunPages::set_host(int rank, int node, std::string_view host) noexcept {
  put(words(rank).node, static_cast<std::uint64_t>(node));
  RankPage::store_text(words(rank).host, host);
}

void RunPages::set_standing(int rank, RankStanding standing, int status) noexcept {
  put(words(rank).standing, static_cast<std::uint64_t>(static_cast<std::uint32_t>(status)) << 32 |
                                static_cast<std::uint64_t>(standing));
}

void RunPages::set_memory(int rank, std::uint64_t bytes) noexcept {
  put(words(rank).memory_bytes, bytes);
}

void RunPages::link(const std::string& path) const {
  const auto target = fmt::format("/proc/{}/fd/{}", ::getpid(), memory_.number());
  if (::symlink(target.c_str(), path.c_str()) != 0) {
    throw SystemError(fmt::format("cannot create the link {}", path), errno);
  }
}

void RunPages::leave(const std::string& path) {
  put(header().left_at, static_cast<std::uint64_t>(RankPage::nanoseconds_now()));
  const std::string_view text(reinterpret_cast<const char*>(bytes_.get()), bytes_of(size_));
  write_whole(path, text);
}

std::string RunPages::copy_of(int first, int count) const {
  std::string bytes;
  const std::int64_t now = RankPage::nanoseconds_now();
  bytes.append(reinterpret_cast<const char*>(&now), sizeof now);
  for (int rank = first; rank < first + count; ++rank) {
    Copy copy;
    const Number* from = words_in(words(rank));
    for (std::size_t i = 0; i < kWords; ++i) copy[i] = get(from[i]);
    bytes.append(reinterpret_cast<const char*>(copy.data()), sizeof copy);
  }
  return bytes;
}

void RunPages::mirror(int first, std::string_view copy) {
  std::int64_t sent = 0;
  const auto count = copy.size() < sizeof sent ? 0 : (copy.size() - sizeof sent) / sizeof(Copy);
  if (copy.size() != sizeof sent + count * sizeof(Copy) || first < 0 ||
      first + static_cast<int>(count) > size_) {
    throw UsageError(
        fmt::format("{} bytes are not the pages of ranks from {} on", copy.size(), first));
  }
  std::memcpy(&sent, copy.data(), sizeof sent);
  const auto shift = RankPage::nanoseconds_now() - sent;
  for (std::size_t i = 0; i < count; ++i) {
    Copy page;
    std::memcpy(page.data(), copy.data() + sizeof sent + i * sizeof page, sizeof page);
    auto& to = words(first + static_cast<int>(i));
    Number* at = words_in(to);
    for (std::size_t word = 0; word < kWords; ++word) put(at[word], page[word]);
    for (auto* time : times_of(to)) {
      const auto value = time->load(std::memory_order_relaxed);
      if (value != 0) time->store(value + shift, std::memory_order_relaxed);
    }
  }
}

}  // namespace lockstep
