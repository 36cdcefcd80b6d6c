// The transport of ranks that share one GPU. Every rank maps the registered memory of the others
// and their staging buffers, and its kernels and copies access them in place. Streams meet at words
// in shared memory of the host: no kernel spins, and no host waits.
//
//   meet        Every rank's stream writes the number of the meeting to a word of every other rank,
//               and waits for the words that the others write to it.
//   all_reduce  Rank 0's stream waits until all inputs are ready and all outputs may be written,
//               reduces for all ranks and tells them. Shards, one per rank, would gain nothing:
//               without MPS the processes take turns on the GPU, and a change of the turn costs
//               several times the reduction (0.15 ms and 0.03 ms for 25 MiB on an H200).
//   owners      Meet. Each rank reduces what it owns of all inputs, or reads what the others own.
//               Meet. No rank writes what another one reads.
//   others      Meet. Each rank reads the pieces that it needs and writes its own output. Meet: all
//               pieces are read.
//
// An input outside registered memory passes through the rank's staging buffer, in windows or, with
// owners, in rounds; for all_reduce all ranks then use theirs, and the reduced window is copied out
// of it. The caller's stream awaits the end of a call by a word too (end_word_internal.h).
#include <fmt/format.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/gpu/device_memory_internal.h"
#include "lockstep/gpu/end_word_internal.h"
#include "lockstep/gpu/gather_internal.h"
#include "lockstep/gpu/owned_rounds_internal.h"
#include "lockstep/gpu/pieces_internal.h"
#include "lockstep/gpu/word_row_internal.h"

namespace lockstep {
namespace {

constexpr int kReducer = 0;  // the rank whose stream executes the reductions of all_reduce

class IpcTransport final : public DeviceTransport {
 public:
  IpcTransport(Group& group, const DeviceTransportParts& parts)
      : parts_(parts),
        memory_(parts, /*maps=*/true),
        words_(group.allocate(WordRow::bytes_for(parts.size()))) {}
  ~IpcTransport() override {
    for (auto* registered : registered_) (void)functions().unregister_host(registered);
  }

  // Does what the devices may refuse; collective. Returns why, the same on all ranks.
  [[nodiscard]] std::string set_up(Group& group) {
    struct Refusal {
      std::array<char, 256> text = {};
    };
    Refusal own;
    try {
      for (int rank = 0; rank < parts_.size(); ++rank) register_row(rank);
      end_ = std::make_shared<EndWord>(parts_.context);
    } catch (const Error& error) {
      std::strncpy(own.text.data(), error.what(), own.text.size() - 1);
    }
    for (const auto& refusal : gather(group, own, "words for GPUs")) {
      if (refusal.text[0] != '\0') return refusal.text.data();
    }
    try {
      stages_ = std::make_unique<DeviceParts>(group, parts_, parts_.stage_bytes, /*maps=*/true,
                                              "stage on GPUs");
    } catch (const PeerError&) {
      throw;
    } catch (const SystemError& error) {
      return error.what();  // thrown on every rank
    }
    return "";
  }

  [[nodiscard]] MemoryWords words_of(const Call& call) const override {
    return memory_.words_of(call);
  }

  [[nodiscard]] Recipe begin(DeviceCall& call) override {
    if (call.call.count > 0) move(call);
    call.result->await_word(end_, end_->write(stream()));
    call.result->record(stream());
    return {};
  }

  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(Group& group,
                                                           std::size_t bytes) override {
    return memory_.allocate(group, bytes);
  }

  [[nodiscard]] int lagging() const noexcept override {
    int rank = parts_.rank();
    if (parts_.size() == 1) return rank;
    // The meeting that this rank's stream has reached. Rank 0 writes to the others after it.
    auto wanted = row(rank == kReducer ? kReducer + 1 : kReducer).word(rank).load();
    if (rank == kReducer && wanted != meetings_.load()) ++wanted;
    std::int32_t behind = 0;
    // Rank 0 is the last choice: it may itself wait for one of the others.
    for (int other = parts_.size() - 1; other >= 0; --other) {
      if (other == parts_.rank()) continue;
      const auto missing =
          static_cast<std::int32_t>(wanted - row(parts_.rank()).word(other).load());
      if (missing > behind) {
        behind = missing;
        rank = other;
      }
    }
    return rank;
  }

  void release_waits() noexcept override {
    constexpr std::uint32_t kFarAhead = 1U << 30;
    const auto value = meetings_.load() + kFarAhead;
    for (int other = 0; other < parts_.size(); ++other) {
      if (other != parts_.rank()) row(parts_.rank()).word(other).store(value);
    }
  }

  [[nodiscard]] bool expect_privacy(Deadline deadline) noexcept override {
    row(parts_.rank()).is_empty(parts_.size()).store(1);
    for (int other = 0; other < parts_.size(); ++other) {
      while (other != parts_.rank() && row(other).is_empty(parts_.size()).load() == 0 &&
             parts_.control->standing(other) != Standing::left && !parts_.control->is_gone(other)) {
        if (deadline.expired()) return false;
        ::sched_yield();
      }
    }
    return true;
  }

 private:
  [[nodiscard]] DeviceFunctions& functions() const noexcept { return parts_.context->functions(); }
  [[nodiscard]] void* stream() const noexcept { return parts_.context->stream(); }
  [[nodiscard]] WordRow row(int rank) const noexcept { return WordRow(words_->part(rank).data()); }
  [[nodiscard]] const MemoryWords& words(int rank, const DeviceCall& call) const {
    return parts_.control->record(rank, call.number).memory;
  }

  void register_row(int rank) {
    const auto memory = words_->part(rank);
    if (memory.empty()) throw SystemError("the ranks have no shared memory");
    std::byte* on_device = nullptr;
    expect(functions().register_host(memory, on_device), "to pin shared memory");
    registered_.push_back(memory.data());
    rows_.push_back(on_device);
  }

  // Tells all other ranks that this rank's stream has reached the meeting.
  void add_writes(std::vector<WordAction>& actions, std::uint32_t number) const {
    for (int other = 0; other < parts_.size(); ++other) {
      if (other == parts_.rank()) continue;
      actions.push_back({WordAction::Kind::write,
                         rows_[static_cast<std::size_t>(other)] + WordRow::offset_of(parts_.rank()),
                         number});
    }
  }
  // Makes it wait until those of the others in [first, last) have reached it.
  void add_waits(std::vector<WordAction>& actions, int first, int last,
                 std::uint32_t number) const {
    for (int other = first; other < last; ++other) {
      if (other == parts_.rank()) continue;
      actions.push_back({WordAction::Kind::wait,
                         rows_[static_cast<std::size_t>(parts_.rank())] + WordRow::offset_of(other),
                         number});
    }
  }
  void enqueue(const std::vector<WordAction>& actions) {
    if (!actions.empty())
      expect(functions().word_actions(actions, stream()), "to meet other ranks");
  }

  void meet() {
    const auto number = ++meetings_;
    std::vector<WordAction> actions;
    add_writes(actions, number);
    add_waits(actions, 0, parts_.size(), number);
    enqueue(actions);
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0 && to != from) expect(functions().copy(to, from, bytes, stream()), "a copy");
  }

  void reduce(const DeviceCall& call, std::span<const std::byte* const> sources,
              std::span<std::byte* const> destinations, std::size_t bytes) {
    if (bytes == 0 || destinations.empty()) return;
    expect(functions().reduce({call.call.dtype, call.call.op, call.weight}, call.tree(), sources,
                              destinations, bytes / bytes_of(call.call.dtype), stream()),
           "a reduction");
  }

  void move(const DeviceCall& call) {
    if (has_owners(call.call.kind)) return read_owned(call);
    call.call.kind == Collective::all_reduce ? all_reduce(call) : read_pieces(call);
  }

  // Reduces spans that all ranks have mapped.
  void reduce_for_all(const DeviceCall& call, std::span<std::byte* const> inputs,
                      std::span<std::byte* const> outputs, std::size_t total) {
    const auto number = ++meetings_;
    std::vector<WordAction> before;
    std::vector<WordAction> after;
    if (parts_.rank() == kReducer) {
      add_waits(before, 0, parts_.size(), number);
      add_writes(after, number);
    } else {
      add_writes(before, number);
      add_waits(after, kReducer, kReducer + 1, number);
    }
    enqueue(before);
    const std::vector<const std::byte*> sources(inputs.begin(), inputs.end());
    if (parts_.rank() == kReducer) reduce(call, sources, outputs, total);
    enqueue(after);
  }

  void all_reduce(const DeviceCall& call) {
    const auto total = call.call.input.size();
    std::vector<std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<std::byte*> stages;
    bool in_place = true;
    for (int rank = 0; rank < parts_.size(); ++rank) {
      inputs.push_back(memory_.input_of(rank, words(rank, call)));
      outputs.push_back(memory_.output_of(rank, words(rank, call)));
      stages.push_back(stages_->at(rank));
      in_place = in_place && inputs.back() != nullptr && outputs.back() != nullptr;
    }
    if (in_place) return reduce_for_all(call, inputs, outputs, total);
    for (std::size_t begin = 0; begin < total; begin += stages_->bytes()) {
      const auto bytes = std::min(stages_->bytes(), total - begin);
      copy(stages_->own(), call.call.input.data() + begin, bytes);
      reduce_for_all(call, stages, stages, bytes);
      copy(call.call.output.data() + begin, stages_->own(), bytes);
    }
  }

  // Where the pieces of the ranks are in one window: piece p of rank r at starts[r] + p ×
  // strides[r].
  struct Window {
    std::size_t begin = 0;
    std::size_t bytes = 0;
    std::vector<const std::byte*> starts;
    std::vector<std::size_t> strides;

    [[nodiscard]] const std::byte* piece(int rank, int piece) const {
      const auto index = static_cast<std::size_t>(rank);
      return starts[index] + static_cast<std::size_t>(piece) * strides[index];
    }
  };

  void read_pieces(const DeviceCall& call) {
    const Pieces pieces(call.call, parts_.size());
    std::vector<const std::byte*> inputs;
    bool all_mapped = true;
    for (int rank = 0; rank < parts_.size(); ++rank) {
      inputs.push_back(memory_.input_of(rank, words(rank, call)));
      const bool is_read = !pieces.one_source || rank == call.call.root;
      all_mapped = all_mapped && (!is_read || inputs.back() != nullptr);
    }
    const auto length = all_mapped ? pieces.bytes : pieces.window(stages_->bytes());
    for (std::size_t begin = 0; begin < pieces.bytes; begin += length) {
      Window window{begin, std::min(length, pieces.bytes - begin), {}, {}};
      for (int rank = 0; rank < parts_.size(); ++rank) {
        const auto* const input = inputs[static_cast<std::size_t>(rank)];
        window.starts.push_back(input != nullptr ? input + begin : stages_->at(rank));
        window.strides.push_back(input != nullptr ? pieces.bytes : length);
      }
      if (inputs[static_cast<std::size_t>(parts_.rank())] == nullptr && !call.call.input.empty()) {
        for (int piece = 0; piece < pieces.count; ++piece) {
          const auto index = static_cast<std::size_t>(piece);
          copy(stages_->own() + index * length,
               call.call.input.data() + index * pieces.bytes + begin, window.bytes);
        }
      }
      meet();
      read_window(call, pieces, window);
      meet();
    }
  }

  void read_window(const DeviceCall& call, const Pieces& pieces, const Window& window) {
    if (call.call.output.empty()) return;
    auto* const output = call.call.output.data() + window.begin;
    const int piece = pieces.read_by(parts_.rank());
    if (reduces(call.call.kind)) {
      std::vector<const std::byte*> sources;
      for (int rank = 0; rank < parts_.size(); ++rank) sources.push_back(window.piece(rank, piece));
      return reduce(call, sources, std::span(&output, 1), window.bytes);
    }
    if (pieces.one_source) return copy(output, window.piece(call.call.root, piece), window.bytes);
    for (int rank = 0; rank < parts_.size(); ++rank) {
      copy(output + static_cast<std::size_t>(rank) * pieces.bytes, window.piece(rank, piece),
           window.bytes);
    }
  }

  // Where the elements of the owners are in one round.
  struct Round {
    const OwnedRounds& rounds;
    std::size_t number = 0;
    bool holds_all = false;  // a staging buffer holds the elements of every owner, else of its rank
    std::vector<const std::byte*> inputs = {};  // by rank; null: in its staging buffer

    [[nodiscard]] std::vector<OwnedPart> of(int owner) const { return rounds.of(owner, number); }
    [[nodiscard]] std::size_t staged_at(int owner, const OwnedPart& part) const {
      const auto piece = holds_all ? static_cast<std::size_t>(owner) : 0U;
      return piece * rounds.length() + part.position;
    }
  };

  void read_owned(const DeviceCall& call) {
    std::vector<const std::byte*> inputs;
    bool all_mapped = true;
    for (int rank = 0; rank < parts_.size(); ++rank) {
      inputs.push_back(memory_.input_of(rank, words(rank, call)));
      all_mapped = all_mapped && inputs.back() != nullptr;
    }
    const bool own_is_mapped = inputs[static_cast<std::size_t>(parts_.rank())] != nullptr;
    // Its own elements are read where they are.
    inputs[static_cast<std::size_t>(parts_.rank())] = call.call.input.data();
    const OwnedRounds rounds(call.call,
                             all_mapped ? std::nullopt : std::optional(stages_->bytes()));
    for (std::size_t number = 0; number < rounds.count(); ++number) {
      const Round round{rounds, number, reduces(call.call.kind), inputs};
      if (!own_is_mapped) stage_owned(call, round);
      meet();
      reduces(call.call.kind) ? reduce_own(call, round) : copy_owned_by_others(call, round);
      meet();
    }
  }

  // What other ranks read of this one.
  void stage_owned(const DeviceCall& call, const Round& round) {
    for (int owner = 0; owner < parts_.size(); ++owner) {
      if ((owner == parts_.rank()) == reduces(call.call.kind)) continue;
      for (const auto& part : round.of(owner)) {
        copy(stages_->own() + round.staged_at(owner, part), call.call.input.data() + part.at,
             part.bytes);
      }
    }
  }

  [[nodiscard]] const std::byte* source(const Round& round, int rank, int owner,
                                        const OwnedPart& part) const {
    const auto* const input = round.inputs[static_cast<std::size_t>(rank)];
    return input != nullptr ? input + part.at : stages_->at(rank) + round.staged_at(owner, part);
  }

  void reduce_own(const DeviceCall& call, const Round& round) {
    for (const auto& part : round.of(parts_.rank())) {
      std::vector<const std::byte*> sources;
      for (int rank = 0; rank < parts_.size(); ++rank) {
        sources.push_back(source(round, rank, parts_.rank(), part));
      }
      auto* const output = call.call.output.data() + part.at;
      reduce(call, sources, std::span(&output, 1), part.bytes);
    }
  }

  void copy_owned_by_others(const DeviceCall& call, const Round& round) {
    for (int owner = 0; owner < parts_.size(); ++owner) {
      if (owner == parts_.rank()) continue;
      for (const auto& part : round.of(owner)) {
        copy(call.call.output.data() + part.at, source(round, owner, owner, part), part.bytes);
      }
    }
  }

  DeviceTransportParts parts_;
  DeviceMemory memory_;
  std::shared_ptr<RegisteredMemory> words_;  // of the host: the rows of all ranks
  std::vector<std::byte*> registered_;       // addresses for the host
  std::vector<std::byte*> rows_;             // addresses for the device, by rank
  std::unique_ptr<DeviceParts> stages_;
  std::shared_ptr<EndWord> end_;
  std::atomic<std::uint32_t> meetings_ = 0;
};

}  // namespace

MadeTransport make_ipc_transport(Group& group, const DeviceTransportParts& parts) {
  auto made = std::make_unique<IpcTransport>(group, parts);
  auto refusal = made->set_up(group);
  if (!refusal.empty()) return {nullptr, "CUDA IPC is not available: " + refusal};
  return {std::move(made), ""};
}

}  // namespace lockstep
