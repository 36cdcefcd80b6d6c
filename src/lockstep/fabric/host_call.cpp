#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/fabric/host_call_internal.h"
#include "lockstep/kernels/copy_pass.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;  // a multiple of every element
// Partials are sent this many rounds before their results are awaited: the wire has work meanwhile.
constexpr std::size_t kRoundsAhead = 2;
constexpr std::uint32_t kInputs = 0;  // parts of a transfer
constexpr std::uint32_t kResults = 1;

std::size_t aligned(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// The allocations of a call's input and output, as its record states them; 0: not registered.
std::uint64_t input_allocation(const MemoryWords& words) { return words[0] & 0xFFFFFFFFU; }
std::uint64_t output_allocation(const MemoryWords& words) { return words[0] >> 32; }

}  // namespace

bool HostCall::handles(const Call& call) noexcept {
  if (call.leaves) return false;  // the plan is over ranks
  if (has_owners(call.kind)) return false;
  return reduces(call.kind) || call.kind == Collective::all_gather ||
         call.kind == Collective::broadcast;
}

HostCall::HostCall(NetworkCall& call, std::shared_ptr<HostMemory> memory,
                   ExchangeAlgorithm algorithm)
    : call_(call),
      memory_(std::move(memory)),
      algorithm_(algorithm),
      parts_(parts_of_call()),
      own_part_(parts_.size()) {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].owner == rank()) own_part_ = i;
  }
  const auto room = memory_->stage_bytes() / parts_.size() / kLine * kLine;
  block_bytes_ = std::min(call_.block_bytes, room);  // equal on all ranks
  const auto input = memory_->locate(made().input);
  const auto output = memory_->locate(made().output);
  if (input) registered_.push_back(input->memory);
  if (output) registered_.push_back(output->memory);
  call_.memory_words = {(input ? input->allocation : 0) | (output ? output->allocation << 32 : 0),
                        input ? input->offset : 0, output ? output->offset : 0};
  if (uses_rails()) {
    expect_by_rails();
  } else {
    expect_data();
  }
}

bool HostCall::spreads_results() const noexcept {
  return made().kind != Collective::reduce && made().kind != Collective::reduce_scatter;
}

std::vector<HostCall::OwnedPart> HostCall::parts_of_call() const {
  const auto bytes = static_cast<std::size_t>(made().count) * bytes_of(made().dtype);
  if (made().kind == Collective::broadcast) return {{made().root, {0, bytes}}};
  std::vector<OwnedPart> parts;
  for (std::size_t i = 0; uses_rails() && i < memory_->size(); ++i) {
    parts.push_back({memory_->ranks()[i], part_of(bytes, i, memory_->size(), kLine)});
  }
  if (uses_rails()) return parts;
  for (int owner = 0; owner < plan().num_ranks(); ++owner) {
    const bool is_piece =
        made().kind == Collective::reduce_scatter || made().kind == Collective::all_gather;
    parts.push_back({owner, is_piece ? Part{static_cast<std::size_t>(owner) * bytes, bytes}
                                     : plan().owned_by(owner, bytes, kLine)});
  }
  return parts;
}

int HostCall::handler_of(const OwnedPart& part, int host) const {
  return plan().host_of(part.owner) == host ? part.owner : plan().sender_to(part.owner, host);
}

std::size_t HostCall::num_rounds() const noexcept {
  std::size_t longest = 0;
  for (const auto& part : parts_) longest = std::max(longest, part.range.length);
  return (longest + block_bytes_ - 1) / block_bytes_;
}

Part HostCall::block_of(const OwnedPart& part, std::size_t round) const noexcept {
  const auto begin = std::min(part.range.length, round * block_bytes_);
  return {begin, std::min(block_bytes_, part.range.length - begin)};
}

// The input of a host's only rank travels as it is.
std::size_t HostCall::partial_bytes(int host, std::size_t bytes) const noexcept {
  if (plan().ranks_of(host).size() == 1) return bytes;
  return bytes / bytes_of(made().dtype) * bytes_of(partial_dtype(made().dtype)) *
         static_cast<std::size_t>(plan().num_partials_of(host));
}

// The results of a part arrive in the output: only after the owner has received this host's
// partials of the same block, so that nothing is overwritten that is still to be read.
void HostCall::expect_data() {
  call_.transfers = true;
  const int here = memory_->host();
  std::size_t scratch = 0;
  const auto reserve = [&](std::size_t bytes) {
    return std::exchange(scratch, scratch + aligned(bytes));
  };
  const auto owned = own_part_ < parts_.size() ? parts_[own_part_].range : Part{};
  if (is_reduction()) {
    for (int host = 0; host < plan().num_hosts(); ++host) {
      incoming_.push_back(reserve(host == here ? 0 : partial_bytes(host, owned.length)));
    }
    for (const auto& part : parts_) {
      const bool sends =
          memory_->size() > 1 && plan().host_of(part.owner) != here && is_handled_here(part);
      outgoing_.push_back(reserve(sends ? partial_bytes(here, part.range.length) : 0));
    }
    const bool keeps = made().kind != Collective::reduce || rank() == made().root;
    result_ = reserve(keeps ? 0 : owned.length);
    temporary_ = reserve(plan().partials().size() * 2 * block_bytes_);  // floats of 16-bit data
    call_.scratch = call_.group->borrow(scratch);
    for (int host = 0; host < plan().num_hosts(); ++host) {
      if (host == here) continue;
      const int from = plan().sender_to(rank(), host);
      call_.group->expect(from, {call_.number, kInputs},
                          {call_.scratch.data() + incoming_[static_cast<std::size_t>(host)],
                           partial_bytes(host, owned.length)},
                          call_.arrived[static_cast<std::size_t>(from)]);
    }
  }
  for (const auto& part : parts_) {
    const bool receives =
        spreads_results()
            ? plan().host_of(part.owner) != here && is_handled_here(part)
            : made().kind == Collective::reduce && rank() == made().root && part.owner != rank();
    if (!receives) continue;
    call_.group->expect(part.owner, {call_.number, kResults},
                        made().output.subspan(part.range.begin, part.range.length),
                        call_.results[static_cast<std::size_t>(part.owner)]);
  }
}

// A rank alone on its host reads only its own memory.
void HostCall::find_memory() {
  const auto size = memory_->size();
  inputs_.assign(size, made().input.data());
  outputs_.assign(size, made().output.data());
  is_staged_ = false;
  if (size == 1) return;
  const auto words = [&](std::size_t index) -> const MemoryWords& {
    return call_.group->record(memory_->ranks()[index], call_.number).memory;
  };
  // The memory that other ranks of the host read.
  const bool is_broadcast = made().kind == Collective::broadcast;
  const auto reads_input = [&](std::size_t index) {
    return !is_broadcast || memory_->ranks()[index] == made().root;
  };
  const auto reads_output = [&](std::size_t index) {
    return spreads_results() && !(is_broadcast && reads_input(index));
  };
  // Each rank has the allocations mapped that it uses itself.
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  for (std::size_t i = 0; i < size && !is_staged_; ++i) {
    const auto check = [&](std::uint64_t own, std::uint64_t& first) {
      if (first == 0) first = own;
      is_staged_ = is_staged_ || own == 0 || own != first;
    };
    if (reads_input(i)) check(input_allocation(words(i)), input);
    if (reads_output(i)) check(output_allocation(words(i)), is_broadcast ? input : output);
  }
  if (is_staged_) return;
  const auto& own = call_.memory_words;
  for (std::size_t i = 0; i < size; ++i) {
    const int other = memory_->ranks()[i];
    const auto at = [&](std::uint64_t allocation, std::uint64_t offset,
                        std::size_t bytes) -> const std::byte* {
      const bool is_input = allocation == input_allocation(own);
      const auto part = (is_input ? registered_.front() : registered_.back())->part(other);
      if (offset > part.size() || bytes > part.size() - offset) {
        throw PeerError(other, "it names memory outside of what it has registered");
      }
      return part.data() + offset;
    };
    const auto read = input_bytes(made(), other, plan().num_ranks());
    const auto written = output_bytes(made(), other, plan().num_ranks());
    if (reads_input(i)) inputs_[i] = at(input_allocation(words(i)), words(i)[1], read);
    if (reads_output(i)) outputs_[i] = at(output_allocation(words(i)), words(i)[2], written);
  }
}

// States to the ranks of this host that this rank has ended a phase.
void HostCall::end_phase() {
  ++memory_->phases;
  for (const int other : memory_->ranks()) {
    if (other == rank()) continue;
    call_.group->post(other, {.kind = NetworkMessage::Kind::phases, .number = memory_->phases});
  }
}

Awaited HostCall::phase_ended_by(int other, std::uint64_t phases, bool last) const noexcept {
  return call_.reaches(call_.group->phases(other), phases, other, last);
}

const std::byte* HostCall::input_at(std::size_t index, std::size_t part, std::size_t offset) const {
  if (is_staged_) {
    return memory_->staged_input(index) + part * block_bytes_ + offset % block_bytes_;
  }
  return inputs_[index] + parts_[part].range.begin + offset;
}

// Where rank `index` of this host, the handler of the part, has its result.
const std::byte* HostCall::result_at(std::size_t index, std::size_t part,
                                     std::size_t offset) const {
  if (is_staged_) {
    return memory_->staged_result(index) + part * block_bytes_ + offset % block_bytes_;
  }
  const bool is_own = parts_[part].owner == memory_->ranks()[index];
  if (is_own && !is_reduction()) return inputs_[index] + offset;
  return outputs_[index] + parts_[part].range.begin + offset;
}

// Where this rank has, or puts, the result of a part that it owns or handles.
std::byte* HostCall::own_result_at(std::size_t part, std::size_t offset) {
  if (made().kind == Collective::reduce_scatter) return made().output.data() + offset;
  if (made().kind == Collective::reduce && rank() != made().root) {
    return call_.scratch.data() + result_ + offset;
  }
  return made().output.data() + parts_[part].range.begin + offset;
}

Recipe HostCall::move() {
  find_memory();
  return uses_rails() ? move_by_rails() : move_directly();
}

Recipe HostCall::move_directly() {
  const int here = memory_->host();
  const auto& ranks = memory_->ranks();
  const auto rounds = num_rounds();
  const auto ahead = is_staged_ || !is_reduction() ? 0 : kRoundsAhead;
  for (std::size_t sent = 0; sent < rounds + ahead; ++sent) {
    if (sent < rounds) {
      if (is_staged_) {
        stage_inputs(sent);
        // Ended by all: they have staged their inputs, and copied the results of the last round.
        end_phase();
        for (const int other : ranks) {
          if (other != rank()) co_await phase_ended_by(other, memory_->phases);
        }
      }
      if (is_reduction()) send_partials(sent);
    }
    if (sent < ahead) continue;
    const auto round = sent - ahead;
    if (own_part_ < parts_.size()) {
      const auto block = block_of(parts_[own_part_], round);
      for (int host = 0; is_reduction() && host < plan().num_hosts(); ++host) {
        if (host == here) continue;
        const int from = plan().sender_to(rank(), host);
        co_await call_.reaches(call_.arrived[static_cast<std::size_t>(from)],
                               partial_bytes(host, block.end()), from);
      }
      if (is_reduction()) reduce_own_part(round);
      send_own_part(round);
    }
    if (!spreads_results() && !is_staged_) continue;
    for (std::size_t i = 0; spreads_results() && i < parts_.size(); ++i) {
      const int owner = parts_[i].owner;
      if (plan().host_of(owner) == here || !is_handled_here(parts_[i])) continue;
      co_await call_.reaches(call_.results[static_cast<std::size_t>(owner)],
                             block_of(parts_[i], round).end(), owner);
    }
    if (is_staged_) stage_results(round);
    // Ended by all: they have read the inputs of this round and have the results that they handle.
    end_phase();
    for (const int other : ranks) {
      if (other != rank()) co_await phase_ended_by(other, memory_->phases);
    }
    copy_results(round);
  }
  if (!is_staged_) {
    // Until all ranks of the host have read its memory, this rank must not reuse it.
    end_phase();
    const auto phases = memory_->phases;  // later calls end more
    for (const int other : ranks) {
      if (other != rank()) co_await phase_ended_by(other, phases, /*last=*/true);
    }
  }
  for (int other = 0; other < plan().num_ranks(); ++other) {
    const auto index = static_cast<std::size_t>(other);
    if (other == rank()) continue;
    if (made().kind == Collective::reduce && rank() == made().root) {
      co_await call_.reaches(call_.results[index], parts_[index].range.length, other,
                             /*last=*/true);
    }
    co_await call_.reaches(call_.sent[index], call_.queued[index], other, /*last=*/true);
  }
}

void HostCall::stage_inputs(std::size_t round) {
  if (!is_reduction()) return;
  auto* const stage = memory_->staged_input(memory_->own_index());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto block = block_of(parts_[i], round);
    copy(stage + i * block_bytes_, made().input.data() + parts_[i].range.begin + block.begin,
         block.length);
  }
}

void HostCall::reduce_here(const HostPartial& partial, std::size_t part, const Part& block,
                           std::byte* to) {
  std::vector<const std::byte*> sources;
  for (auto rank = partial.ranks.begin; rank < partial.ranks.end; ++rank) {
    sources.push_back(input_at(memory_->index_of(static_cast<int>(rank)), part, block.begin));
  }
  reduce_to_partial(made().dtype, made().op, TreePlan::over_ranks(static_cast<int>(sources.size())),
                    sources, to, block.length / bytes_of(made().dtype));
}

void HostCall::send_partials(std::size_t round) {
  const int here = memory_->host();
  const bool is_alone = memory_->size() == 1;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& part = parts_[i];
    const auto block = block_of(part, round);
    if (plan().host_of(part.owner) == here || !is_handled_here(part) || block.length == 0) continue;
    const auto offset = partial_bytes(here, block.begin);
    const auto bytes = partial_bytes(here, block.length);
    const auto* start = input_at(memory_->own_index(), i, block.begin);
    if (!is_alone) {
      auto* const partials = call_.scratch.data() + outgoing_[i] + offset;
      auto* next = partials;
      for (const auto& partial : plan().partials()) {
        if (partial.host != here) continue;
        reduce_here(partial, i, block, next);
        next += bytes / static_cast<std::size_t>(plan().num_partials_of(here));
      }
      start = partials;
    }
    call_.send_to(part.owner, kInputs, offset, {start, bytes});
  }
}

void HostCall::reduce_own_part(std::size_t round) {
  const int here = memory_->host();
  const auto block = block_of(parts_[own_part_], round);
  if (block.length == 0) return;
  const auto count = block.length / bytes_of(made().dtype);
  const bool is_wide = partial_dtype(made().dtype) != made().dtype;
  auto* temporary = call_.scratch.data() + temporary_;
  std::vector<const std::byte*> sources;
  std::vector<std::size_t> taken(static_cast<std::size_t>(plan().num_hosts()));
  for (const auto& partial : plan().partials()) {
    const auto host = static_cast<std::size_t>(partial.host);
    const std::byte* source = nullptr;
    if (partial.host == here) {
      const bool is_input = partial.ranks.end == partial.ranks.begin + 1 && !is_wide;
      if (is_input) {
        source = input_at(memory_->index_of(static_cast<int>(partial.ranks.begin)), own_part_,
                          block.begin);
      } else {
        reduce_here(partial, own_part_, block, temporary);
      }
    } else {
      const auto each = partial_bytes(partial.host, block.length) /
                        static_cast<std::size_t>(plan().num_partials_of(partial.host));
      source = call_.scratch.data() + incoming_[host] + partial_bytes(partial.host, block.begin) +
               taken[host]++ * each;
      if (is_wide && plan().ranks_of(partial.host).size() == 1) {
        reduce_to_partial(made().dtype, made().op, TreePlan::over_ranks(1), std::span(&source, 1),
                          temporary, count);
        source = nullptr;
      }
    }
    sources.push_back(source != nullptr ? source : temporary);
    if (source == nullptr) temporary += 2 * block_bytes_;
  }
  reduce_partials({made().dtype, made().op, call_.weight}, plan().tree(), plan().num_ranks(),
                  sources, own_result_at(own_part_, block.begin), count);
}

void HostCall::send_own_part(std::size_t round) {
  const auto& part = parts_[own_part_];
  const auto block = block_of(part, round);
  if (block.length == 0) return;
  const auto* const start =
      is_reduction() ? own_result_at(own_part_, block.begin) : made().input.data() + block.begin;
  if (made().kind == Collective::reduce && made().root != rank()) {
    call_.send_to(made().root, kResults, block.begin, {start, block.length});
  }
  if (!spreads_results()) return;
  for (int i = 1; i < plan().num_hosts(); ++i) {
    const int host = (memory_->host() + i) % plan().num_hosts();  // hosts begin with different ones
    call_.send_to(plan().sender_to(rank(), host), kResults, block.begin, {start, block.length});
  }
}

void HostCall::stage_results(std::size_t round) {
  if (!spreads_results()) return;
  auto* const stage = memory_->staged_result(memory_->own_index());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!is_handled_here(parts_[i])) continue;
    const auto block = block_of(parts_[i], round);
    const bool is_input = i == own_part_ && !is_reduction();
    copy(stage + i * block_bytes_,
         is_input ? made().input.data() + block.begin : own_result_at(i, block.begin),
         block.length);
  }
}

// In a gather, this rank also has its own input in its output.
void HostCall::copy_results(std::size_t round) {
  if (!spreads_results() || made().output.empty()) return;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto block = block_of(parts_[i], round);
    const int handler = handler_of(parts_[i], memory_->host());
    auto* const to = made().output.data() + parts_[i].range.begin + block.begin;
    if (handler != rank()) {
      copy_pass({to, block.length}, result_at(memory_->index_of(handler), i, block.begin),
                caching_for(made().output.size()));
    } else if (made().kind == Collective::all_gather && i == own_part_) {
      copy(to, made().input.data() + block.begin, block.length);
    }
  }
}

}  // namespace lockstep
