// One rank's part of a call in shared memory, and the recipes for it.
//
// Words: S is the bytes of an input, N the ranks. A *piece* is what one rank gets of another's
// input; a *window* is the part of every piece that is moved in one round.
//
//   one-shot S is small: the input was copied into a slot with the call. When all have entered,
//            each rank takes what it needs from the slots. One wait.
//   two-shot all_reduce and reduce of slots for which reading N of them costs more than a wait:
//            rank r reduces chunk r of all slots into its own, and takes the others' chunks. Two
//            waits.
//   direct   the inputs lie in registered memory. When all have entered, each rank takes what it
//   needs
//            from where it lies, ends its phase, and waits for all to have done so. Two waits.
//   direct write  all_reduce and reduce with inputs and outputs in registered memory: rank r
//   reduces chunk r
//            of all inputs and writes it to all outputs. Reads S, writes S. Two waits.
//   staged   anything else, in rounds through the staging areas: the end of each phase says that
//   this rank has
//            taken round t - 1 and staged round t. One wait per round.
//   staged reduction   the same for all_reduce and reduce: in round t a rank reduces its chunk of
//            round t and takes the others' results of round t - 1.
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
  std::size_t largest_input = 0;  // of all ranks, in bytes
  GroupMemory* memory = nullptr;  // the group's
  // Of this rank so far, through all calls: phases ended, and rounds gone through the staging
  // areas. The halves of those alternate from call to call, so a call need not wait for the last
  // takers of the one before.
  std::uint64_t* phases = nullptr;
  std::uint64_t* rounds = nullptr;
  // Where each rank has its input and output, unless inline; null: not in registered memory.
  std::vector<const std::byte*> inputs = {};
  std::vector<std::byte*> outputs = {};
  std::uint64_t fetched = 0;  // ranks whose input is on its way, a bit each

  [[nodiscard]] int rank() const noexcept { return memory->blocks().rank(); }
  [[nodiscard]] int size() const noexcept { return memory->blocks().size(); }
  [[nodiscard]] std::byte* inline_slot(int rank) const noexcept {
    return memory->inline_slot(rank, number, largest_input);
  }
  void end_phase() const noexcept { memory->blocks().raise_phases(++*phases); }
  /// All ranks have ended as many phases as this one.
  [[nodiscard]] Awaited all_here() const noexcept {
    return {.counters = &memory->blocks().counters(),
            .condition = {Condition::Of::phases, *phases}};
  }
  [[nodiscard]] Awaited all_finished() const noexcept {
    auto awaited = all_here();
    awaited.last = true;
    return awaited;
  }
};

/// Every rank's whole input becomes one result, for all of them or for root.
[[nodiscard]] inline bool reduces_all(Collective kind) noexcept {
  return kind == Collective::all_reduce || kind == Collective::reduce;
}

/// Has the processor fetch what this rank will read of the slot of `other`, which has entered: the
/// first KiB of it, of calls whose inputs all ranks read.
void fetch_ahead(const ShmCall& call, int other, bool one_shot) noexcept;
/// And make the slot of the next call, should it be like this one, ready to be written.
void prepare_next_slot(const ShmCall& call) noexcept;
/// All of a one-shot call that all ranks have entered.
void take_one_shot(const ShmCall& call);
/// The recipe for any other, by where the ranks' memory lies.
[[nodiscard]] Recipe recipe_for(ShmCall& call);

}  // namespace lockstep
