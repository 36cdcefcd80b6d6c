// One rank's part of a call in shared memory, and the recipes for it.
//
// Words: S is the size of an input in bytes, N the number of ranks. A call is *inline* if every
// rank has copied its input into an inline buffer before it entered. A *piece* is the part of an
// input that one rank reads; a *window* is the part of every piece that is moved in one round.
//
//   one-shot          Inline, S is small. When all ranks have entered, each rank reads what it
//   needs
//                     from the inline buffers. One wait.
//   two-shot          Inline, all_reduce and reduce, where reading N buffers costs more than a
//   wait.
//                     Rank r reduces chunk r of all buffers into its own buffer; then each rank
//                     copies the chunks of the others. Two waits.
//   direct            The inputs are in registered memory. When all ranks have entered, each rank
//                     reads what it needs in place, ends its phase, and waits until all ranks have
//                     ended theirs. Two waits.
//   direct write      all_reduce and reduce with inputs and outputs in registered memory. Rank r
//                     reduces chunk r of all inputs and writes it to all outputs. Per rank it reads
//                     S and writes S. gather_from_owners likewise: an owner writes its elements to
//                     all outputs. Two waits.
//   staged            Any other call, in rounds through the staging areas. The end of a phase
//   states
//                     that this rank has read round t - 1 and staged round t. One wait per round.
//   staged reduction  The same for all_reduce and reduce. In round t a rank reduces its chunk of
//                     round t and copies the others' results of round t - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/shm/group_memory_internal.h"

namespace lockstep {

class ShmCall final : public CallOperation {
 public:
  bool is_inline = false;
  std::size_t largest_input = 0;  // over all ranks, in bytes
  GroupMemory* memory = nullptr;  // of the group
  // Totals of this rank over all calls: phases ended, and rounds through the staging areas. The
  // halves of a staging area alternate across calls, so that a call need not wait for the last
  // readers of the previous one.
  std::uint64_t* phases = nullptr;
  std::uint64_t* rounds = nullptr;
  // The input and output of each rank, unless inline; null: not in registered memory.
  std::vector<const std::byte*> inputs = {};
  std::vector<std::byte*> outputs = {};
  std::uint64_t fetched = 0;  // ranks whose input is prefetched, one bit per rank

  [[nodiscard]] int rank() const noexcept { return memory->blocks().rank(); }
  [[nodiscard]] int size() const noexcept { return memory->blocks().size(); }
  [[nodiscard]] std::byte* inline_buffer(int rank) const noexcept {
    return memory->inline_buffer(rank, number, largest_input);
  }
  void end_phase() const noexcept { memory->blocks().raise_phases(++*phases); }
  /// All ranks have ended as many phases as this rank.
  [[nodiscard]] Awaited phase_complete() const noexcept {
    return {.counters = &memory->blocks().counters(),
            .condition = {Condition::Of::phases, *phases}};
  }
  [[nodiscard]] Awaited last_phase_complete() const noexcept {
    auto awaited = phase_complete();
    awaited.last = true;
    return awaited;
  }
};

/// Whether the kind reduces the whole inputs of all ranks to one result.
[[nodiscard]] inline bool reduces_all(Collective kind) noexcept {
  return kind == Collective::all_reduce || kind == Collective::reduce;
}

/// Prefetches what this rank will read of the inline buffer of `other`, which has entered: at most
/// the first KiB, and only for calls whose inputs all ranks read.
void fetch_ahead(const ShmCall& call, int other, bool one_shot) noexcept;
/// Prefetches the inline buffer of the next call for writing, assuming that it is like this one.
void prepare_next_buffer(const ShmCall& call) noexcept;
/// Executes a one-shot call that all ranks have entered.
void run_one_shot(const ShmCall& call);
/// The recipe of any other call, chosen by the memory of the ranks.
[[nodiscard]] Recipe recipe_for(ShmCall& call);

}  // namespace lockstep
