#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/host_headers_internal.h"
#include "lockstep/fabric/network_message.h"

namespace lockstep {
namespace {

using Number = std::atomic<std::uint64_t>;  // of the last call that a rank has entered
using Length = std::uint32_t;               // of a header, before its bytes

constexpr std::size_t kLine = 64;

}  // namespace

std::size_t HostHeaders::bytes_per_rank(std::size_t inline_bytes) noexcept {
  const auto slot = sizeof(Length) + kMaxEnteredBytes + inline_bytes;
  return kLine + kMaxCallsInFlight * ((slot + kLine - 1) / kLine * kLine);
}

HostHeaders::HostHeaders(std::shared_ptr<RegisteredMemory> memory, std::size_t own_index,
                         std::size_t size)
    : memory_(std::move(memory)), own_index_(own_index), size_(size) {}

bool HostHeaders::enter(std::uint64_t number, std::span<const std::byte> header) {
  const std::lock_guard lock(mutex_);
  auto* const to = slot(own_index_, number);
  const auto length = static_cast<Length>(header.size());
  LOCKSTEP_ASSERT(header.size() <= room(), "a header fits");
  std::memcpy(to, &length, sizeof(length));
  if (length > 0) std::memcpy(to + sizeof(length), header.data(), length);
  entered_ = number;
  if (header.empty()) posted_ = number;
  const auto entered_by = [&](std::size_t index) -> Number& {
    return *reinterpret_cast<Number*>(memory_->part(static_cast<int>(index)).data());
  };
  entered_by(own_index_).store(number, std::memory_order_seq_cst);
  for (std::size_t i = 0; i < size_; ++i) {
    if (entered_by(i).load(std::memory_order_seq_cst) < number) return false;
  }
  return true;
}

std::span<const std::byte> HostHeaders::header_of(std::size_t index,
                                                  std::uint64_t number) const noexcept {
  const auto* const from = slot(index, number);
  Length length = 0;
  std::memcpy(&length, from, sizeof(length));
  // A faulty rank may have written anything there.
  return {from + sizeof(length), std::min<std::size_t>(length, room())};
}

void HostHeaders::set_posted(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (posted_ + 1 == number) posted_ = number;
}

std::vector<std::vector<std::byte>> HostHeaders::take_unposted(std::uint64_t completed) {
  const std::lock_guard lock(mutex_);
  return take_unposted_locked(completed);
}

std::vector<std::vector<std::byte>> HostHeaders::take_late(const Progress& all,
                                                           Clock::time_point now,
                                                           Clock::duration patience) {
  const std::lock_guard lock(mutex_);
  const auto first = std::max(all.entered, posted_) + 1;
  if (entered_ < first) return {};
  if (std::exchange(late_.first, first) != first) late_.since = now;
  if (now - late_.since < patience) return {};
  return take_unposted_locked(all.completed);
}

std::byte* HostHeaders::slot(std::size_t index, std::uint64_t number) const noexcept {
  return memory_->part(static_cast<int>(index)).data() + kLine +
         number % kMaxCallsInFlight * (sizeof(Length) + room());
}

std::size_t HostHeaders::room() const noexcept {
  return (memory_->bytes().size() - kLine) / kMaxCallsInFlight - sizeof(Length);
}

std::vector<std::vector<std::byte>> HostHeaders::take_unposted_locked(std::uint64_t completed) {
  std::vector<std::vector<std::byte>> headers;
  for (auto number = std::max(completed, posted_) + 1; number <= entered_; ++number) {
    const auto header = header_of(own_index_, number);
    headers.emplace_back(header.begin(), header.end());
  }
  posted_ = entered_;
  return headers;
}

}  // namespace lockstep
