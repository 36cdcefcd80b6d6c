// The transport for devices that cannot map each other's memory: data passes through shared memory
// of the host, which is pinned, in windows. The host reduces them with the loops of shm.
//
// A *turn* is one window of a call; turns are numbered over all calls. A rank copies its input
// window to its input buffer, waits until all ranks have done so, reduces its part into its result
// buffer if the call reduces, and copies results, or the inputs of other ranks, to its device. A
// rank has kBuffers of each, so that the copies of neighboring turns run while the host reduces.
// With owners, a turn is one round (owned_rounds_internal.h) instead of a window.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/gpu/device_memory_internal.h"
#include "lockstep/gpu/event_condition_internal.h"
#include "lockstep/gpu/gather_internal.h"
#include "lockstep/gpu/owned_rounds_internal.h"
#include "lockstep/gpu/pieces_internal.h"
#include "lockstep/kernels/reduce.h"
#include "lockstep/net/shared_memory.h"

namespace lockstep {
namespace {

constexpr std::size_t kBuffers = 3;

// The turns that a rank has finished, as counters of its own (counters.h) beside its buffers.
constexpr auto kCopiedIn = Condition::Of::entered;     // its input window is in its buffer
constexpr auto kReduced = Condition::Of::phases;       // its result is in its buffer
constexpr auto kCopiedOut = Condition::Of::completed;  // it has read the buffers of all ranks
constexpr std::size_t kCounterStride = 128;

class StagedTransport final : public DeviceTransport {
 public:
  StagedTransport(Group& group, const DeviceTransportParts& parts)
      : parts_(parts),
        memory_(parts, /*maps=*/false),
        buffer_bytes_(std::max(kPieceLine * static_cast<std::size_t>(parts.size()),
                               parts.stage_bytes / 4 / kPieceLine * kPieceLine)),
        shared_(group.allocate(page_bytes() + 2 * kBuffers * buffer_bytes_)) {
    struct Refusal {
      std::array<char, 256> text = {};
    };
    Refusal own;
    try {
      for (int rank = 0; rank < parts_.size(); ++rank) {
        const auto memory = shared_->part(rank);
        if (memory.empty()) throw SystemError("the ranks have no shared memory");
        std::byte* on_device = nullptr;
        expect(functions().register_host(memory, on_device), "to pin shared memory");
        registered_.push_back(memory.data());
      }
    } catch (const Error& error) {
      std::strncpy(own.text.data(), error.what(), own.text.size() - 1);
    }
    const auto all = gather(group, own, "buffers for GPUs");
    for (int rank = 0; rank < group.size(); ++rank) {
      const auto& refusal = all[static_cast<std::size_t>(rank)];
      if (refusal.text[0] == '\0') continue;
      unregister();
      throw SystemError(fmt::format("backend staged is not available on rank {}: {}",
                                    group.global_rank(rank), refusal.text.data()));
    }
    const auto* const first = shared_->part(0).data();
    const auto stride = parts_.size() > 1 ? shared_->part(1).data() - first : 0;
    counters_.emplace(first, static_cast<std::size_t>(stride), kCounterStride, parts_.size());
  }
  ~StagedTransport() override { unregister(); }

  [[nodiscard]] Recipe begin(DeviceCall& call) override { return move(call); }

  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(Group& group,
                                                           std::size_t bytes) override {
    return memory_.allocate(group, bytes);
  }
  // No work on a device waits for another rank.
  [[nodiscard]] int lagging() const noexcept override { return parts_.rank(); }
  void release_waits() noexcept override {}

 private:
  // The work of one call.
  struct Plan {
    Pieces pieces;
    std::size_t window = 0;
    std::uint64_t first = 0;  // turn
    std::uint64_t turns = 0;
    std::optional<OwnedRounds> rounds = {};  // if the call has owners, and instead of windows

    [[nodiscard]] std::vector<OwnedPart> owned(int owner, std::uint64_t turn) const {
      return rounds->of(owner, static_cast<std::size_t>(turn - first));
    }
    // In an input buffer of a call that reduces; that of another one holds its rank's elements.
    [[nodiscard]] std::size_t offset_of(int owner) const {
      return static_cast<std::size_t>(owner) * rounds->length();
    }
    [[nodiscard]] std::size_t begin(std::uint64_t turn) const { return (turn - first) * window; }
    [[nodiscard]] std::size_t bytes(std::uint64_t turn) const {
      return std::min(window, pieces.bytes - begin(turn));
    }
  };

  [[nodiscard]] DeviceFunctions& functions() const noexcept { return parts_.context->functions(); }
  void unregister() noexcept {
    for (auto* registered : registered_) (void)functions().unregister_host(registered);
    registered_.clear();
  }

  [[nodiscard]] std::byte* input_buffer(int rank, std::uint64_t turn) const {
    return shared_->part(rank).data() + page_bytes() + turn % kBuffers * buffer_bytes_;
  }
  [[nodiscard]] std::byte* result_buffer(int rank, std::uint64_t turn) const {
    return input_buffer(rank, turn) + kBuffers * buffer_bytes_;
  }
  void raise(Condition::Of of, std::uint64_t turns) {
    auto* const at =
        shared_->part(parts_.rank()).data() + static_cast<std::size_t>(of) * kCounterStride;
    reinterpret_cast<std::atomic<std::uint64_t>*>(at)->store(turns, std::memory_order_seq_cst);
    parts_.control->wake_others();
  }
  [[nodiscard]] Awaited all(Condition::Of of, std::uint64_t turns) const {
    return {.counters = &*counters_, .condition = {of, turns}};
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes, void* stream) {
    if (bytes > 0) expect(functions().copy(to, from, bytes, stream), "a copy");
  }

  [[nodiscard]] Plan plan_of(const Call& call) const {
    const Pieces pieces(call, parts_.size());
    if (has_owners(call.kind)) {
      const OwnedRounds rounds(call, buffer_bytes_);
      return {pieces, 0, turns_, rounds.count(), rounds};
    }
    const auto window = pieces.window(buffer_bytes_);
    return {pieces, window, turns_, (pieces.bytes + window - 1) / window};
  }

  Recipe move(DeviceCall& call) {
    const auto plan = plan_of(call.call);
    turns_ += plan.turns;
    for (auto turn = plan.first; turn <= plan.first + plan.turns; ++turn) {
      if (turn < plan.first + plan.turns) {
        if (turn >= kBuffers) {
          const EventCondition read(*parts_.context, copied_out_[turn % kBuffers], parts_.rank());
          co_await Awaited{.local = &read};
          read.expect_passed();
          raise(kCopiedOut, turn - kBuffers + 1);
          co_await all(kCopiedOut, turn - kBuffers + 1);
        }
        copy_in(call, plan, turn);
      }
      if (turn == plan.first) continue;
      const auto last = turn - 1;
      const EventCondition copied(*parts_.context, copied_in_[last % kBuffers], parts_.rank());
      co_await Awaited{.local = &copied};
      copied.expect_passed();
      raise(kCopiedIn, turn);
      co_await all(kCopiedIn, turn);
      if (reduces(call.call.kind)) reduce_part(call, plan, last);
      raise(kReduced, turn);
      if (call.call.kind == Collective::all_reduce) co_await all(kReduced, turn);
      copy_out(call, plan, last);
    }
    const auto selected = parts_.context->scope();
    // Behind the copies of the last turns, which are on this stream.
    call.result->record(parts_.context->copy_stream());
  }

  void copy_in(const DeviceCall& call, const Plan& plan, std::uint64_t turn) {
    const auto selected = parts_.context->scope();
    if (plan.rounds) {
      copy_in_owned(call, plan, turn);
    } else if (!call.call.input.empty()) {
      for (int piece = 0; piece < plan.pieces.count; ++piece) {
        const auto index = static_cast<std::size_t>(piece);
        copy(input_buffer(parts_.rank(), turn) + index * plan.window,
             call.call.input.data() + index * plan.pieces.bytes + plan.begin(turn),
             plan.bytes(turn), parts_.context->stream());
      }
    }
    copied_in_[turn % kBuffers] = parts_.context->record(parts_.context->stream());
  }

  // What this rank contributes to every owner, or what it owns.
  void copy_in_owned(const DeviceCall& call, const Plan& plan, std::uint64_t turn) {
    auto* const buffer = input_buffer(parts_.rank(), turn);
    for (int owner = 0; owner < parts_.size(); ++owner) {
      if (!reduces(call.call.kind) && owner != parts_.rank()) continue;
      const auto start = reduces(call.call.kind) ? plan.offset_of(owner) : 0;
      for (const auto& part : plan.owned(owner, turn)) {
        copy(buffer + start + part.position, call.call.input.data() + part.at, part.bytes,
             parts_.context->stream());
      }
    }
  }

  // All ranks have copied in: the host reduces what this rank owes.
  void reduce_part(const DeviceCall& call, const Plan& plan, std::uint64_t turn) {
    if (plan.rounds) return reduce_owned(call, plan, turn);
    ByteShard shard{0, plan.bytes(turn)};
    if (call.call.kind == Collective::all_reduce) {
      shard = shard_of(shard.bytes, parts_.rank(), parts_.size());
    } else if (call.call.output.empty()) {
      return;
    }
    if (shard.bytes == 0) return;
    const auto piece = static_cast<std::size_t>(plan.pieces.read_by(parts_.rank()));
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < parts_.size(); ++rank) {
      sources.push_back(input_buffer(rank, turn) + piece * plan.window + shard.begin);
    }
    auto* const result = result_buffer(parts_.rank(), turn) + shard.begin;
    reduce({call.call.dtype, call.call.op, call.weight}, call.tree(), sources,
           std::span(&result, 1), shard.bytes / bytes_of(call.call.dtype));
  }

  // The elements of one owner follow each other in the buffers: one reduction for all parts.
  void reduce_owned(const DeviceCall& call, const Plan& plan, std::uint64_t turn) {
    const auto parts = plan.owned(parts_.rank(), turn);
    if (parts.empty()) return;
    std::vector<const std::byte*> sources;
    for (int rank = 0; rank < parts_.size(); ++rank) {
      sources.push_back(input_buffer(rank, turn) + plan.offset_of(parts_.rank()));
    }
    auto* const result = result_buffer(parts_.rank(), turn);
    const auto bytes = parts.back().position + parts.back().bytes;
    reduce({call.call.dtype, call.call.op, call.weight}, call.tree(), sources,
           std::span(&result, 1), bytes / bytes_of(call.call.dtype));
  }

  // The work of the caller's stream before the call has ended: the copy in has waited for it.
  void copy_out(const DeviceCall& call, const Plan& plan, std::uint64_t turn) {
    const auto selected = parts_.context->scope();
    auto* const stream = parts_.context->copy_stream();
    if (plan.rounds) {
      copy_out_owned(call, plan, turn);
    } else if (!call.call.output.empty()) {
      auto* const output = call.call.output.data() + plan.begin(turn);
      const auto bytes = plan.bytes(turn);
      const auto piece = static_cast<std::size_t>(plan.pieces.read_by(parts_.rank()));
      if (call.call.kind == Collective::all_reduce) {
        for (int rank = 0; rank < parts_.size(); ++rank) {
          const auto shard = shard_of(bytes, rank, parts_.size());
          copy(output + shard.begin, result_buffer(rank, turn) + shard.begin, shard.bytes, stream);
        }
      } else if (reduces(call.call.kind)) {
        copy(output, result_buffer(parts_.rank(), turn), bytes, stream);
      } else if (plan.pieces.one_source) {
        copy(output, input_buffer(call.call.root, turn) + piece * plan.window, bytes, stream);
      } else {
        for (int rank = 0; rank < parts_.size(); ++rank) {
          copy(output + static_cast<std::size_t>(rank) * plan.pieces.bytes,
               input_buffer(rank, turn) + piece * plan.window, bytes, stream);
        }
      }
    }
    copied_out_[turn % kBuffers] = parts_.context->record(stream);
  }

  // What this rank owns, reduced; or what the others own.
  void copy_out_owned(const DeviceCall& call, const Plan& plan, std::uint64_t turn) {
    const bool sums = reduces(call.call.kind);
    for (int owner = 0; owner < parts_.size(); ++owner) {
      if ((owner == parts_.rank()) != sums) continue;
      const auto* const buffer = sums ? result_buffer(owner, turn) : input_buffer(owner, turn);
      for (const auto& part : plan.owned(owner, turn)) {
        copy(call.call.output.data() + part.at, buffer + part.position, part.bytes,
             parts_.context->copy_stream());
      }
    }
  }

  DeviceTransportParts parts_;
  DeviceMemory memory_;
  std::size_t buffer_bytes_;
  std::shared_ptr<RegisteredMemory> shared_;  // of the host: counters and buffers of all ranks
  std::vector<std::byte*> registered_;
  std::optional<Counters> counters_;
  std::uint64_t turns_ = 0;
  std::array<std::shared_ptr<void>, kBuffers> copied_in_;   // events of the last turns, by buffer
  std::array<std::shared_ptr<void>, kBuffers> copied_out_;  // likewise
};

}  // namespace

std::unique_ptr<DeviceTransport> make_staged_transport(Group& group,
                                                       const DeviceTransportParts& parts) {
  return std::make_unique<StagedTransport>(group, parts);
}

}  // namespace lockstep
