#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

#include "lockstep/fabric/control_line_internal.h"

namespace lockstep {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "a lock of one process would not hold in another");

std::size_t index_of(Condition::Of of) noexcept { return static_cast<std::size_t>(of); }

}  // namespace

std::size_t ControlLines::bytes_for(int size) {
  return static_cast<std::size_t>(size) * sizeof(Line);
}

ControlLines::ControlLines(std::byte* start, int rank, int size) noexcept
    : lines_(reinterpret_cast<Line*>(start)), rank_(rank), size_(size) {}

void ControlLines::enter(const CallSlot& slot, std::uint64_t mark) noexcept {
  auto& own = line(rank_);
  own.slots[slot.number % kMaxCallsInFlight] = slot;
  marks_of(own)[slot.number % kRecentMarks].store(mark, std::memory_order_relaxed);
  raise(Condition::Of::entered, slot.number);
}

void ControlLines::raise_steps(std::uint64_t steps) noexcept { raise(Condition::Of::steps, steps); }

void ControlLines::complete(std::uint64_t number) noexcept {
  raise(Condition::Of::completed, number);
}

void ControlLines::stand(Standing standing) noexcept {
  line(rank_).presence.standing.store(standing, std::memory_order_seq_cst);
  ring();
}

void ControlLines::fail(const Cause& cause) noexcept {
  auto& own = line(rank_).presence;
  own.culprit = cause.culprit;
  const auto length = std::min(cause.text.size(), own.cause.size() - 1);
  std::memcpy(own.cause.data(), cause.text.data(), length);
  own.cause[length] = '\0';
  stand(Standing::failed);
  // Who begins a call that this rank has entered and given up sees that something is wrong.
  for (auto& mark : marks_of(line(rank_))) mark.store(kFailedMark, std::memory_order_release);
}

void ControlLines::ring() noexcept {
  auto& bell = line(rank_).doorbell;
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ControlLines::set_cores(const cpu_set_t& cores) noexcept {
  line(rank_).presence.cores = cores;
}

std::uint64_t ControlLines::counter(int rank, Condition::Of of) const noexcept {
  // Sequentially consistent for sleep(); on the processors we know it costs what acquire costs.
  return line(rank).counters[index_of(of)].value.load(std::memory_order_seq_cst);
}

std::uint64_t ControlLines::lowest(Condition::Of of) const noexcept {
  auto lowest = counter(0, of);
  for (int rank = 1; rank < size_; ++rank) lowest = std::min(lowest, counter(rank, of));
  return lowest;
}

std::optional<int> ControlLines::lagging(const Condition& condition) const noexcept {
  // All lines are looked at, whatever the first says: so their misses overlap.
  int lagging = -1;
  for (int rank = size_ - 1; rank >= 0; --rank) lagging = lags(rank, condition) ? rank : lagging;
  return lagging < 0 ? std::nullopt : std::optional(lagging);
}

std::uint64_t ControlLines::mark(int rank, std::uint64_t number) const noexcept {
  return marks_of(line(rank))[number % kRecentMarks].load(std::memory_order_acquire);
}

const CallSlot& ControlLines::slot(int rank, std::uint64_t number) const noexcept {
  return line(rank).slots[number % kMaxCallsInFlight];
}

Standing ControlLines::standing(int rank) const noexcept {
  return line(rank).presence.standing.load(std::memory_order_seq_cst);
}

Cause ControlLines::cause(int rank) const {
  const auto& presence = line(rank).presence;
  return {presence.culprit, std::string(presence.cause.data())};
}

int ControlLines::count_cores() const noexcept {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int rank = 0; rank < size_; ++rank) CPU_OR(&all, &all, &line(rank).presence.cores);
  return CPU_COUNT(&all);
}

void ControlLines::raise(Condition::Of of, std::uint64_t value) noexcept {
  line(rank_).counters[index_of(of)].value.store(value, std::memory_order_seq_cst);
  ring();
}

void ControlLines::sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value, Deadline until) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until.remaining());
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

}  // namespace lockstep
