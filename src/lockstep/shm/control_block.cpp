#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

#include "lockstep/shm/control_block_internal.h"

namespace lockstep {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "atomics in shared memory must be lock-free");

std::size_t index_of(Condition::Of of) noexcept { return static_cast<std::size_t>(of); }

}  // namespace

std::size_t ControlBlocks::bytes_for(int size) {
  return static_cast<std::size_t>(size) * sizeof(Block);
}

ControlBlocks::ControlBlocks(std::byte* start, int rank, int size) noexcept
    : blocks_(reinterpret_cast<Block*>(start)),
      counters_(start, sizeof(Block), sizeof(Counter), size),
      rank_(rank),
      size_(size) {
  static_assert(offsetof(Block, counters) == 0 && offsetof(Counter, value) == 0);
}

CallRecord& ControlBlocks::own_record(std::uint64_t number) noexcept {
  return block(rank_).records[number % kMaxCallsInFlight];
}

void ControlBlocks::enter(std::uint64_t number, std::uint64_t signature) noexcept {
  signatures_of(block(rank_))[number % kRecentSignatures].store(signature,
                                                                std::memory_order_relaxed);
  raise(Condition::Of::entered, number);
}

void ControlBlocks::raise_phases(std::uint64_t phases) noexcept {
  raise(Condition::Of::phases, phases);
}

void ControlBlocks::complete(std::uint64_t number) noexcept {
  raise(Condition::Of::completed, number);
}

void ControlBlocks::set_standing(Standing standing) noexcept {
  block(rank_).presence.standing.store(standing, std::memory_order_seq_cst);
  ring();
}

void ControlBlocks::fail(const Cause& cause) noexcept {
  auto& own = block(rank_).presence;
  own.culprit = cause.culprit;
  const auto length = std::min(cause.text.size(), own.cause.size() - 1);
  std::memcpy(own.cause.data(), cause.text.data(), length);
  own.cause[length] = '\0';
  set_standing(Standing::failed);
  // A rank that begins a call which this rank has entered and given up detects the failure.
  for (auto& signature : signatures_of(block(rank_))) {
    signature.store(kFailedSignature, std::memory_order_release);
  }
}

void ControlBlocks::ring() noexcept {
  auto& bell = block(rank_).doorbell;
  if (bell.sleepers.load(std::memory_order_seq_cst) == 0) return;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ControlBlocks::set_cores(const cpu_set_t& cores) noexcept {
  block(rank_).presence.cores = cores;
}

std::uint64_t ControlBlocks::signature(int rank, std::uint64_t number) const noexcept {
  return signatures_of(block(rank))[number % kRecentSignatures].load(std::memory_order_acquire);
}

const CallRecord& ControlBlocks::record(int rank, std::uint64_t number) const noexcept {
  return block(rank).records[number % kMaxCallsInFlight];
}

Standing ControlBlocks::standing(int rank) const noexcept {
  return block(rank).presence.standing.load(std::memory_order_seq_cst);
}

Cause ControlBlocks::cause(int rank) const {
  const auto& presence = block(rank).presence;
  return {presence.culprit, std::string(presence.cause.data())};
}

int ControlBlocks::count_cores() const noexcept {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int rank = 0; rank < size_; ++rank) CPU_OR(&all, &all, &block(rank).presence.cores);
  return CPU_COUNT(&all);
}

void ControlBlocks::raise(Condition::Of of, std::uint64_t value) noexcept {
  block(rank_).counters[index_of(of)].value.store(value, std::memory_order_seq_cst);
  ring();
}

void ControlBlocks::sleep_on(std::atomic<std::uint32_t>& word, std::uint32_t value,
                             Deadline until) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until.remaining());
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

}  // namespace lockstep
