#include "lockstep/gpu/device_memory_internal.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/gpu/gather_internal.h"

namespace lockstep {
namespace {

// What a rank tells the others about its part of an allocation.
struct Part {
  std::array<char, 256> error = {};  // empty: success
  MemoryHandle handle = {};
  std::byte* start = nullptr;  // for ranks that are threads of the same process
  int ended = -1;              // a rank whose memory cannot be mapped because its process has ended
};

// Allocations are compared this many at a time.
constexpr std::size_t kSwept = 32;

void set_error(Part& part, const Error& error) {
  std::strncpy(part.error.data(), error.what(), part.error.size() - 1);
}

void expect_success(const Group& group, const std::vector<Part>& all, std::string_view what) {
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto& part = all[static_cast<std::size_t>(rank)];
    if (part.error[0] == '\0') continue;
    if (part.ended >= 0) throw PeerError(group.global_rank(part.ended), part.error.data());
    throw SystemError(
        fmt::format("rank {} cannot {}: {}", group.global_rank(rank), what, part.error.data()));
  }
}

// Waits a little: a process that ends closes its descriptors first.
bool has_ended(const DeviceTransportParts& parts, int rank) {
  constexpr int kMilliseconds = 200;
  const auto& process = parts.peers[static_cast<std::size_t>(rank)].process;
  const auto watch = parts.membership.registry->watches().watch(process);
  if (!watch || !*watch) return true;
  pollfd watched{watch->number(), POLLIN, 0};
  return ::poll(&watched, 1, kMilliseconds) > 0;
}

class DeviceAllocation final : public RegisteredMemory {
 public:
  DeviceAllocation(std::shared_ptr<DeviceParts> parts, std::size_t bytes)
      : parts_(std::move(parts)), bytes_(bytes) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override {
    return {parts_->own(), bytes_};
  }

 private:
  std::shared_ptr<DeviceParts> parts_;
  std::size_t bytes_;
};

}  // namespace

DeviceParts::DeviceParts(Group& group, const DeviceTransportParts& parts, std::size_t bytes,
                         bool maps, std::string_view what)
    : context_(parts.context),
      bytes_(bytes),
      rank_(parts.rank()),
      starts_(static_cast<std::size_t>(parts.size())) {
  auto& functions = context_->functions();
  Part own;
  try {
    auto& start = starts_[static_cast<std::size_t>(rank_)];
    expect(functions.allocate(bytes, start), fmt::format("{} bytes of memory", bytes));
    expect(functions.set_zero(start, bytes, context_->stream()), "to clear memory");
    expect(functions.synchronize(context_->stream()), "to clear memory");
    if (maps) expect(functions.export_memory(start, own.handle), "to export memory");
    own.start = start;
  } catch (const Error& error) {
    set_error(own, error);
  }
  try {
    const auto all = gather(group, own, fmt::format("{}, {} bytes", what, bytes));
    expect_success(group, all, "allocate GPU memory");
    if (!maps) return;
    Part opened;
    try {
      for (int rank = 0; rank < group.size(); ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        if (rank == rank_) continue;
        if (parts.peers[index].process.process == ::getpid()) {
          starts_[index] = all[index].start;
          continue;
        }
        const auto status = functions.open_memory(all[index].handle, starts_[index]);
        if (!status.ok() && has_ended(parts, rank)) {
          opened.ended = rank;
          throw SystemError(fmt::format(
              "rank {} ({}) has ended during the call in which others map its GPU memory; see its "
              "own output for the reason",
              group.global_rank(rank), parts.control->describe(rank)));
        }
        expect(status, fmt::format("the memory of rank {}", group.global_rank(rank)));
        opened_.push_back(starts_[index]);
      }
    } catch (const Error& error) {
      set_error(opened, error);
    }
    expect_success(group, gather(group, opened, "mapped"), "map GPU memory of other ranks");
  } catch (...) {
    close();
    release();
    throw;
  }
}

DeviceParts::~DeviceParts() {
  close();
  release();
}

void DeviceParts::close() noexcept {
  for (auto* start : opened_) (void)context_->functions().close_memory(start);
  opened_.clear();
}

void DeviceParts::release() noexcept {
  auto*& start = starts_[static_cast<std::size_t>(rank_)];
  if (start != nullptr) (void)context_->functions().release(start);
  start = nullptr;
}

std::shared_ptr<RegisteredMemory> DeviceMemory::allocate(Group& group, std::size_t bytes) {
  sweep(group);
  auto made = std::make_shared<DeviceParts>(group, parts_, std::max<std::size_t>(bytes, 1), maps_,
                                            "allocate on GPUs");
  {
    const std::lock_guard lock(mutex_);
    allocations_[next_++] = made;
  }
  return std::make_shared<DeviceAllocation>(std::move(made), bytes);
}

// Allocations have the same numbers on all ranks.
void DeviceMemory::sweep(Group& group) {
  std::vector<std::uint32_t> numbers;
  std::uint32_t dropped = 0;
  for (const auto& [number, parts] : allocations_) {
    if (numbers.size() == kSwept) break;
    if (parts.use_count() == 1) dropped |= std::uint32_t{1} << numbers.size();
    numbers.push_back(number);
  }
  if (numbers.empty()) return;
  auto by_all = dropped;
  for (const auto others : gather(group, dropped, "dropped GPU memory")) by_all &= others;
  if (by_all == 0) return;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if ((by_all >> i & 1U) != 0) allocations_.at(numbers[i])->close();
  }
  // No rank maps a part any more when its owner releases it.
  (void)gather(group, by_all, "closed GPU memory");
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::lock_guard lock(mutex_);
    if ((by_all >> i & 1U) != 0) allocations_.erase(numbers[i]);
  }
}

MemoryWords DeviceMemory::words_of(const Call& call) const noexcept {
  const auto input = locate(call.input);
  const auto output = locate(call.output);
  return {input.number | static_cast<std::uint64_t>(output.number) << 32, input.offset,
          output.offset};
}

std::byte* DeviceMemory::input_of(int rank, const MemoryWords& words) const noexcept {
  return resolve(rank, static_cast<std::uint32_t>(words[0]), words[1]);
}

std::byte* DeviceMemory::output_of(int rank, const MemoryWords& words) const noexcept {
  return resolve(rank, static_cast<std::uint32_t>(words[0] >> 32), words[2]);
}

DeviceMemory::Location DeviceMemory::locate(std::span<const std::byte> span) const noexcept {
  if (span.empty()) return {};
  const std::less<> before;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, parts] : allocations_) {
    const auto* const start = parts->own();
    if (before(span.data(), start) || before(start + parts->bytes(), span.data() + span.size())) {
      continue;
    }
    return {number, static_cast<std::uint64_t>(span.data() - start)};
  }
  return {};
}

std::byte* DeviceMemory::resolve(int rank, std::uint32_t number,
                                 std::uint64_t offset) const noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(number);
  if (found == allocations_.end() || found->second->at(rank) == nullptr) return nullptr;
  return found->second->at(rank) + offset;
}

}  // namespace lockstep
