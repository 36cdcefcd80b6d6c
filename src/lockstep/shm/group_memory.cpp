#include <utility>

#include "lockstep/shm/group_memory_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kHeaderBytes = 128;
constexpr std::size_t kLine = 128;

std::size_t times(int count, std::size_t bytes) { return static_cast<std::size_t>(count) * bytes; }

std::size_t aligned(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// The area of a rank besides its control block.
constexpr std::size_t kSmallArea = kMaxCallsInFlight * kSmallInlineBytes;
constexpr std::size_t kInlineArea = kSmallArea + kMaxCallsInFlight * kMaxInlineBytes;
// If the areas of ranks were a power of two apart, the buffers of one call would map to the same
// few cache sets.
constexpr std::size_t kApart = 17 * kLine;
constexpr std::size_t kRankArea = kInlineArea + 4 * kStageBytes + kApart;
static_assert(sizeof(RankState) <= kApart);  // RankState is in this gap

std::size_t ranks_begin(int size) { return kHeaderBytes + aligned(ControlBlocks::bytes_for(size)); }
std::size_t message_queues_begin(int size) { return ranks_begin(size) + times(size, kRankArea); }

std::atomic<std::uint64_t>& header_of(const SharedMemory& memory) {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(memory.bytes().data());
}

std::atomic<std::uint64_t>& given_up_of(const SharedMemory& memory) {
  return (&header_of(memory))[1];
}

// The number of ranks that have dropped an allocation, in its header page.
std::atomic<std::uint32_t>& drops_of(const SharedMemory& memory) {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(memory.bytes().data());
}

}  // namespace

Allocation::Allocation(std::shared_ptr<SharedMemory> memory, std::size_t bytes, int rank)
    : memory_(std::move(memory)), bytes_(bytes), rank_(rank) {}

Allocation::~Allocation() { drops_of(*memory_).fetch_add(1, std::memory_order_acq_rel); }

std::size_t Allocation::memory_bytes(std::size_t bytes, int size) {
  return page_bytes() + times(size, whole_pages(bytes));
}

std::span<std::byte> Allocation::part(int rank) const noexcept {
  return memory_->bytes().subspan(page_bytes() + times(rank, whole_pages(bytes_)), bytes_);
}

std::size_t GroupMemory::bytes_for(int size) {
  return whole_pages(message_queues_begin(size) + times(size * size, sizeof(MessageQueue)));
}

GroupMemory::GroupMemory(std::shared_ptr<SharedMemory> memory, int rank, int size)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(size),
      ranks_(memory_->bytes().data() + ranks_begin(size)),
      blocks_(memory_->bytes().data() + kHeaderBytes, rank, size) {}

void GroupMemory::set_one_shot_bytes(std::size_t bytes) noexcept {
  header_of(*memory_).store(bytes + 1);  // 0: not set
}

std::optional<std::size_t> GroupMemory::one_shot_bytes() const noexcept {
  const auto value = header_of(*memory_).load();
  return value == 0 ? std::nullopt : std::optional<std::size_t>(value - 1);
}

std::byte* GroupMemory::inline_buffer(int rank, std::uint64_t call,
                                      std::size_t bytes) const noexcept {
  auto* const area = ranks_ + times(rank, kRankArea);
  // The buffers of consecutive calls are not adjacent: a core's prefetch beyond the buffer that it
  // reads must not touch a buffer that another core is about to write.
  const auto index = call * 21 % kMaxCallsInFlight;
  return bytes <= kSmallInlineBytes ? area + index * kSmallInlineBytes
                                    : area + kSmallArea + index * kMaxInlineBytes;
}

std::byte* GroupMemory::staged_input(int rank, std::uint64_t round) const noexcept {
  return ranks_ + times(rank, kRankArea) + kInlineArea + (round % 2) * kStageBytes;
}

std::byte* GroupMemory::staged_result(int rank, std::uint64_t round) const noexcept {
  return staged_input(rank, round) + 2 * kStageBytes;
}

MessageQueue& GroupMemory::message_queue(int from, int to) const noexcept {
  auto* queues =
      reinterpret_cast<MessageQueue*>(memory_->bytes().data() + message_queues_begin(size_));
  return queues[from * size_ + to];
}

RankState& GroupMemory::state(int rank) const noexcept {
  auto* const area = ranks_ + times(rank, kRankArea);
  return *reinterpret_cast<RankState*>(area + kInlineArea + 4 * kStageBytes);
}

void GroupMemory::give_up() const noexcept {
  given_up_of(*memory_).store(1, std::memory_order_seq_cst);
}

const std::atomic<std::uint64_t>& GroupMemory::given_up_word() const noexcept {
  return given_up_of(*memory_);
}

std::shared_ptr<Allocation> GroupMemory::add(std::shared_ptr<SharedMemory> memory,
                                             std::size_t bytes) {
  const auto id = next_++;
  auto allocation = std::make_shared<Allocation>(memory, bytes, rank_);
  allocations_[id] = {std::move(memory), whole_pages(bytes)};
  if (bytes > 0) own_parts_[allocation->bytes().data()] = id;
  return allocation;
}

void GroupMemory::sweep() {
  for (auto entry = allocations_.begin(); entry != allocations_.end();) {
    const auto drops = drops_of(*entry->second.memory).load(std::memory_order_acquire);
    if (drops < static_cast<std::uint32_t>(size_)) {
      ++entry;
      continue;
    }
    std::erase_if(own_parts_, [&](const auto& part) { return part.second == entry->first; });
    entry = allocations_.erase(entry);
  }
}

Location GroupMemory::locate(std::span<const std::byte> span) const noexcept {
  auto part = own_parts_.upper_bound(span.data());
  if (span.empty() || part == own_parts_.begin()) return {};
  --part;
  const auto offset = static_cast<std::size_t>(span.data() - part->first);
  const auto& entry = allocations_.at(part->second);
  if (offset + span.size() > entry.part_bytes) return {};
  return {part->second, offset};
}

std::byte* GroupMemory::resolve(int rank, const Location& location) const noexcept {
  const auto entry = allocations_.find(location.allocation);
  if (entry == allocations_.end()) return nullptr;
  return entry->second.memory->bytes().data() + page_bytes() +
         times(rank, entry->second.part_bytes) + location.offset;
}

void GroupMemory::make_private() {
  for (const auto& [id, entry] : allocations_) {
    entry.memory->make_private(page_bytes() + times(rank_, entry.part_bytes), entry.part_bytes);
  }
}

}  // namespace lockstep
