#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/fabric/group.h"
#include "lockstep/shm/data_plane_internal.h"

namespace lockstep {

ShmDataPlane::ShmDataPlane(const ShmOptions& options, std::shared_ptr<GroupRegistry> registry,
                           std::unique_ptr<MemoryExchange> exchange,
                           std::shared_ptr<GroupMemory> memory, std::shared_ptr<const Peers> peers)
    : DataPlane(&memory->state(memory->blocks().rank()).moving, memory->given_up_word()),
      options_(options),
      registry_(std::move(registry)),
      exchange_(std::move(exchange)),
      memory_(std::move(memory)),
      peers_(std::move(peers)),
      message_states_(static_cast<std::size_t>(size())) {
  if (rank() != 0) return;
  // Rank 0 decides before it is present; the others read the value once all ranks are present.
  auto bytes = options_.one_shot_bytes ? options_.one_shot_bytes : registry_->threshold(size());
  if (size() == 1 && !bytes) bytes = kMaxInlineBytes;
  if (bytes) memory_->set_one_shot_bytes(std::min(*bytes, kMaxInlineBytes));
}

std::string ShmDataPlane::settings() const {
  return fmt::format("inline_bytes {}", options_.inline_bytes);
}

std::optional<std::string> ShmDataPlane::refusal_of(const Device& device) const {
  if (device.kind == DeviceKind::cpu) return std::nullopt;
  return "it supports CPU memory only; copy the tensor to the CPU";
}

void ShmDataPlane::tune(Group& group) {
  one_shot_bytes_ = memory_->one_shot_bytes();
  if (one_shot_bytes_) return;
  one_shot_bytes_ = measure_one_shot_bytes(group, *this);
  registry_->set_threshold(size(), *one_shot_bytes_);
}

std::shared_ptr<CallOperation> ShmDataPlane::prepare(const Call& call, std::uint64_t number) {
  // Not zeroed first: that would cost as much as a small reduction.
  auto own = std::make_shared_for_overwrite<ShmCall>();
  own->call = call;
  own->number = number;
  own->memory = memory_.get();
  own->phases = &phases_;
  own->rounds = &rounds_;
  own->largest_input = std::max(input_bytes(call, call.root, size()), call.input.size());
  own->is_inline = own->largest_input <= std::min(options_.inline_bytes, kMaxInlineBytes);
  const auto input = memory_->locate(call.input);
  // From a small size on, a reduction in place costs less than the copy.
  if (reduces_all(call.kind) && input.allocation >= 0 &&
      own->largest_input > kMaxRegisteredInlineBytes) {
    own->is_inline = false;
  }
  if (own->is_inline) {
    if (!call.input.empty()) {
      std::memcpy(own->inline_buffer(rank()), call.input.data(), call.input.size());
    }
  } else {
    own->memory_words = words_of(input, memory_->locate(call.output));
  }
  return own;
}

Recipe ShmDataPlane::begin(CallOperation& operation, bool same_memory) {
  auto& call = static_cast<ShmCall&>(operation);
  const auto& blocks = memory_->blocks();
  const auto words = [&](int rank) -> const MemoryWords& {
    return blocks.record(rank, call.number).memory;
  };
  for (int rank = 0; rank < size() && !same_memory; ++rank) {
    // If the input of only some ranks is in registered memory, the call is not inline on any rank.
    if (input_in(words(rank)).allocation >= 0) call.is_inline = false;
  }
  if (call.is_inline && is_one_shot(call.call)) {
    run_one_shot(call);
    return {};
  }
  for (int rank = 0; rank < size() && !call.is_inline; ++rank) {
    const auto& where = same_memory ? call.memory_words : words(rank);
    call.inputs.push_back(memory_->resolve(rank, input_in(where)));
    call.outputs.push_back(memory_->resolve(rank, output_in(where)));
  }
  return recipe_for(call);
}

void ShmDataPlane::look_ahead(CallOperation& oldest) noexcept {
  auto& call = static_cast<ShmCall&>(oldest);
  if (!call.is_inline || size() > std::numeric_limits<decltype(call.fetched)>::digits) return;
  const auto& counters = memory_->blocks().counters();
  const Condition entered{Condition::Of::entered, call.number};
  const bool one_shot = is_one_shot(call.call);
  for (int i = 1; i < size(); ++i) {
    const int other = (rank() + i) % size();  // ranks start at different lines to avoid contention
    const auto bit = std::uint64_t{1} << other;
    if ((call.fetched & bit) != 0 || counters.lags(other, entered)) continue;
    call.fetched |= bit;
    fetch_ahead(call, other, one_shot);
  }
}

void ShmDataPlane::retire(CallOperation& operation, bool is_last) noexcept {
  const auto& call = static_cast<const ShmCall&>(operation);
  // Not if the next call has been entered: other ranks then read its inline buffer.
  if (call.is_inline && is_last) prepare_next_buffer(call);
}

// Whether an inline call is one-shot: every rank computes all of it. Otherwise it is two-shot: each
// rank reduces one chunk for all.
bool ShmDataPlane::is_one_shot(const Call& call) const noexcept {
  return !reduces_all(call.kind) || call.input.size() <= one_shot_bytes_.value_or(kMaxInlineBytes);
}

std::shared_ptr<MessageOperation> ShmDataPlane::send(const Message& message,
                                                     std::span<const std::byte> bytes) {
  auto& state = message_states_[static_cast<std::size_t>(message.peer)];
  auto own = std::make_shared<ShmMessage>();
  own->message = message;
  own->sends = true;
  own->outgoing = bytes;
  own->number = state.sent++;
  own->memory = memory_.get();
  own->state = &state;
  own->recipe = send_recipe(*own);
  return own;
}

std::shared_ptr<MessageOperation> ShmDataPlane::receive(const Message& message,
                                                        std::span<std::byte> bytes) {
  auto& state = message_states_[static_cast<std::size_t>(message.peer)];
  auto& turns = state.turns[message.tag];
  if (!turns) turns = std::make_shared<MessageState::Turns>();
  auto own = std::make_shared<ShmMessage>();
  own->message = message;
  own->incoming = bytes;
  own->number = turns->begun++;
  own->memory = memory_.get();
  own->state = &state;
  own->turns = turns;
  own->recipe = receive_recipe(*own);
  return own;
}

std::shared_ptr<RegisteredMemory> ShmDataPlane::allocate(std::size_t bytes,
                                                         const Device& /*device*/,
                                                         Deadline deadline, const Watch& watch) {
  memory_->sweep();
  auto memory = exchange_->make(Allocation::memory_bytes(bytes, size()), deadline, watch);
  auto allocation = memory_->add(std::move(memory), bytes);
  // First touched by the rank that will use it, so that it is on that rank's NUMA node.
  std::memset(allocation->bytes().data(), 0, bytes);
  return allocation;
}

void ShmDataPlane::cut_off() {
  if (!exchange_->mapped_apart()) return;
  // A rank that leaves has not given up the group: others may still write.
  if (memory_->given_up_word().load() == 0) return memory_->make_private();
  // A rank that moves data finishes its piece within milliseconds, unless its process is stopped.
  // A stopped process may resume at any time: the memory that it can write to must no longer be
  // ours.
  constexpr std::chrono::milliseconds kOnePiece{200};
  const auto limit = Deadline::after(kOnePiece);
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    while (memory_->state(other).moving.load(std::memory_order_seq_cst) != 0 &&
           !peers_->dead(other)) {
      if (limit.expired()) return memory_->make_private();
      ::sched_yield();
    }
  }
}

}  // namespace lockstep
