#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/testing/board_internal.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kNoteWords = 30;
constexpr std::size_t kNoteBytes = kNoteWords * sizeof(std::uint64_t);  // with the final zero
constexpr std::uint32_t kNoteBuffers = 4;

// The notes of a rank use a ring of four buffers. Note n is written to buffer n % 4 and then
// announced. A reader copies the last announced note and reads the count again. Every word is
// stored with release and loaded with acquire: a reader that copies a word of note n + 4 also sees
// that note n + 3 was announced, and copies again.
struct NoteBuffer {
  std::atomic<std::int64_t> at_nanoseconds;
  std::array<std::atomic<std::uint64_t>, kNoteWords> words;
};

using Counter = std::atomic<std::uint32_t>;
static_assert(Counter::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free,
              "a lock would exist in one process only; several processes use the board");

void wake_all(Counter& counter) {
  counter.fetch_add(1);
  ::syscall(SYS_futex, &counter, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Returns when `counter` is no longer `seen`, or when `deadline` expires. Spurious returns are
// possible.
void wait_for_change(const Counter& counter, std::uint32_t seen, Deadline deadline) {
  const auto at = deadline.at().time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
  const timespec until{seconds.count(), std::chrono::nanoseconds(at - seconds).count()};
  ::syscall(SYS_futex, &counter, FUTEX_WAIT_BITSET, seen, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

std::string text_of(const NoteBuffer& buffer) {
  std::array<char, kNoteBytes> bytes{};
  for (std::size_t i = 0; i < kNoteWords; ++i) {
    const std::uint64_t word = buffer.words[i].load(std::memory_order_acquire);
    std::memcpy(&bytes[i * sizeof(word)], &word, sizeof(word));
  }
  return {bytes.data(), ::strnlen(bytes.data(), kNoteBytes)};
}

void fill(NoteBuffer& buffer, std::string_view text) {
  std::array<char, kNoteBytes> bytes{};
  std::copy_n(text.data(), std::min(text.size(), kNoteBytes - 1), bytes.begin());
  for (std::size_t i = 0; i < kNoteWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[i * sizeof(word)], sizeof(word));
    buffer.words[i].store(word, std::memory_order_release);
  }
  const auto now = Deadline::Clock::now().time_since_epoch();
  buffer.at_nanoseconds.store(std::chrono::nanoseconds(now).count(), std::memory_order_release);
}

std::string in_quotes(const std::optional<Note>& note) {
  return note ? fmt::format("its last note is \"{}\"", note->text) : "it left no note";
}

}  // namespace

struct Board::Head {
  int size;
  std::int64_t deadline_nanoseconds;
  Counter arrivals;       // at all barriers so far, by all ranks
  Counter ranks_changed;  // raised when a barrier is complete or a rank has ended
  Counter any_noted;      // raised when a rank has noted or ended
};

struct alignas(64) Board::Entry {
  std::atomic<RankState> state;
  std::atomic<pid_t> thread;
  Counter arrivals;  // of this rank, at all barriers so far
  Counter notes;     // announced so far
  std::array<NoteBuffer, kNoteBuffers> buffers;
};

Board::Board(int size, Deadline deadline) {
  if (size < 1 || size > kMostRanks) {
    throw UsageError(
        fmt::format("a test runs from 1 to {} ranks, not {}: change the number", kMostRanks, size));
  }
  memory_ = FileDescriptor(::memfd_create("lockstep test board", MFD_CLOEXEC));
  if (!memory_) throw SystemError("cannot create a memfd for a test's board", errno);
  const std::size_t bytes = sizeof(Entry) * static_cast<std::size_t>(size + 1);
  if (::ftruncate(memory_.number(), static_cast<off_t>(bytes)) != 0) {
    throw SystemError(fmt::format("cannot allocate {} bytes for a test's board", bytes), errno);
  }
  map(bytes);
  new (head_) Head{};
  head_->size = size;
  head_->deadline_nanoseconds = std::chrono::nanoseconds(deadline.at().time_since_epoch()).count();
  for (int rank = 0; rank < size; ++rank) new (&entry(rank)) Entry{};
}

Board::Board(FileDescriptor memory) : memory_(std::move(memory)) {
  struct stat info {};
  if (::fstat(memory_.number(), &info) != 0) {
    throw SystemError(
        fmt::format("cannot read a test's board from descriptor {}", memory_.number()), errno);
  }
  map(static_cast<std::size_t>(info.st_size));
}

Board::~Board() { ::munmap(head_, sizeof(Entry) * static_cast<std::size_t>(head_->size + 1)); }

void Board::map(std::size_t bytes) {
  static_assert(sizeof(Head) <= sizeof(Entry) && alignof(Head) <= alignof(Entry),
                "the head occupies the memory of the first entry");
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.number(), 0);
  if (address == MAP_FAILED) {
    throw SystemError(fmt::format("cannot map {} bytes of a test's board", bytes), errno);
  }
  head_ = static_cast<Head*>(address);
}

Board::Entry& Board::entry(int rank) const noexcept {
  LOCKSTEP_ASSERT(rank >= 0 && rank < head_->size, "a board has an entry for each rank of the run");
  return reinterpret_cast<Entry*>(head_)[rank + 1];
}

void Board::enter(int rank) {
  entry(rank).thread = static_cast<pid_t>(::syscall(SYS_gettid));
  entry(rank).state = RankState::running;
}

void Board::leave(int rank, RankState state) {
  entry(rank).state = state;
  wake_all(head_->ranks_changed);
  wake_all(head_->any_noted);
}

void Board::note(int rank, std::string_view text) {
  Entry& own = entry(rank);
  const std::uint32_t next = own.notes.load() + 1;
  fill(own.buffers[next % kNoteBuffers], text);
  own.notes.store(next, std::memory_order_release);
  wake_all(head_->any_noted);
}

void Board::barrier(int rank, Deadline deadline) {
  const std::uint32_t number = ++entry(rank).arrivals;
  const std::uint32_t complete = number * static_cast<std::uint32_t>(size());
  if (++head_->arrivals == complete) return wake_all(head_->ranks_changed);
  for (;;) {
    const std::uint32_t seen = head_->ranks_changed;
    // No rank passes barrier n + 1 before all ranks have passed barrier n.
    if (head_->arrivals >= complete) return;
    expect_all_alive(number);
    if (deadline.expired()) break;
    wait_for_change(head_->ranks_changed, seen, deadline);
  }
  for (int other = 0; other < size(); ++other) {
    if (entry(other).arrivals >= number) continue;
    throw PeerError(other,
                    fmt::format("rank {} has not reached barrier {} of the test, where rank {} "
                                "waits; {}",
                                other, number, rank, in_quotes(last_note(other))));
  }
}

void Board::expect_all_alive(std::uint32_t number) const {
  for (int other = 0; other < size(); ++other) {
    const bool ended = state(other) == RankState::finished || state(other) == RankState::failed;
    if (!ended || entry(other).arrivals >= number) continue;
    throw PeerError(
        other, fmt::format("rank {} has {} and will not reach barrier {} of the test; {}", other,
                           state(other) == RankState::failed ? "failed" : "finished", number,
                           in_quotes(last_note(other))));
  }
}

void Board::wait_for_note(int rank, std::string_view text, Deadline deadline) const {
  for (;;) {
    const std::uint32_t seen = head_->any_noted;
    const bool ended = state(rank) == RankState::finished || state(rank) == RankState::failed;
    const auto note = last_note(rank);
    if (note && note->text == text) return;
    if (ended || deadline.expired()) {
      throw PeerError(rank, fmt::format("rank {} {} without the note \"{}\"; {}", rank,
                                        ended ? "has ended" : "has run until the deadline", text,
                                        in_quotes(note)));
    }
    wait_for_change(head_->any_noted, seen, deadline);
  }
}

int Board::size() const noexcept { return head_->size; }

Deadline Board::deadline() const noexcept {
  return Deadline(
      Deadline::Clock::time_point(std::chrono::nanoseconds(head_->deadline_nanoseconds)));
}

RankState Board::state(int rank) const noexcept { return entry(rank).state; }

pid_t Board::thread(int rank) const noexcept { return entry(rank).thread; }

std::optional<Note> Board::last_note(int rank) const {
  const Entry& its = entry(rank);
  for (;;) {
    const std::uint32_t number = its.notes.load(std::memory_order_acquire);
    if (number == 0) return std::nullopt;
    const NoteBuffer& buffer = its.buffers[number % kNoteBuffers];
    Note note{text_of(buffer), {}};
    const std::chrono::nanoseconds at(buffer.at_nanoseconds.load(std::memory_order_acquire));
    note.at = Deadline::Clock::time_point(at);
    if (its.notes.load(std::memory_order_acquire) - number < kNoteBuffers - 1) return note;
  }
}

}  // namespace lockstep::testing
