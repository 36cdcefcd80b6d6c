// One rank's part of a call in shared memory, and the recipes for it.
//
// Words: S is the bytes of an input, N the ranks. A *piece* is what one rank gets of another's
// input; a *window* is the part of every piece that is moved in one round.
//
//   one-shot S is small: the input was copied into a slot with the call. When all have entered,
//            each rank takes what it needs from the slots. One wait.
//   shared   all_reduce and reduce of slots for which reading N of them costs more than a wait:
//            rank r joins chunk r of all slots into its own, and takes the others' chunks. Two
//            waits.
//   direct   the inputs lie in library memory. When all have entered, each rank takes what it needs
//            from where it lies, takes a step, and waits for all to have done so. Two waits.
//   push     all_reduce and reduce with inputs and outputs in library memory: rank r joins chunk r
//            of all inputs and writes it to all outputs. Reads S, writes S. Two waits.
//   staged   anything else, in rounds through the staging areas: each step says that this rank has
//            taken round t - 1 and staged round t. One wait a round.
//   staged reduction   the same for all_reduce and reduce: in round t a rank joins its chunk of
//            round t and takes the others' results of round t - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/fabric/call.h"
#include "lockstep/fabric/group_memory_internal.h"
#include "lockstep/fabric/steps_internal.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

struct ShmCall {
  Call call;  // its name is in the descriptor
  CallDescriptor descriptor = {};
  std::uint64_t number = 0;
  std::uint64_t mark = 0;
  bool is_inline = false;
  std::size_t largest_input = 0;  // of all ranks, in bytes
  GroupMemory* memory = nullptr;  // the group's
  // Of this rank so far, through all calls: steps taken, and rounds gone through the staging areas.
  // The halves of those alternate from call to call, so a call need not wait for the last takers of
  // the one before.
  std::uint64_t* steps = nullptr;
  std::uint64_t* rounds = nullptr;
  const TreePlan* rank_tree = nullptr;
  std::int64_t weight = 0;                // of all ranks
  std::optional<TreePlan> own_tree = {};  // where contributions state their leaves
  // Where each rank has its input and output, unless inline; null: not in library memory.
  std::vector<const std::byte*> inputs = {};
  std::vector<std::byte*> outputs = {};

  [[nodiscard]] int rank() const noexcept { return memory->lines().rank(); }
  [[nodiscard]] int size() const noexcept { return memory->lines().size(); }
  [[nodiscard]] const TreePlan& tree() const noexcept { return own_tree ? *own_tree : *rank_tree; }

  [[nodiscard]] std::byte* inline_slot(int rank) const noexcept {
    return memory->inline_slot(rank, number, largest_input);
  }
  void take_step() const noexcept { memory->lines().raise_steps(++*steps); }
  /// All ranks have taken as many steps as this one.
  [[nodiscard]] Awaited all_here() const noexcept {
    return {.lines = &memory->lines(), .condition = {Condition::Of::steps, *steps}};
  }
  [[nodiscard]] Awaited all_finished() const noexcept {
    auto awaited = all_here();
    awaited.last = true;
    return awaited;
  }
};

/// Every rank's whole input becomes one result, for all of them or for root.
[[nodiscard]] inline bool joins_all(Collective kind) noexcept {
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
[[nodiscard]] Steps recipe_for(ShmCall& call);

}  // namespace lockstep
