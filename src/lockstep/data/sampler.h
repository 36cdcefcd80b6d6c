// Chooses the samples of each rank in each step, with a state that resumes at any world size. It
// takes the place of Python's DistributedSampler, but its defaults differ; OrderKind::torch,
// SampleShard::stride, TailUnit::world and Tail::pad together give Python's samples. Words:
//
//   position      an index into the epoch's order (order.h), counted over all ranks
//   global batch  the positions of one step on all ranks: the next B positions of the order
//   shard         the part of a global batch that one rank takes
//   tail          the end of an epoch whose size is not a multiple of the global batch
//
// Everything is computed from {seed, epoch, position}; nothing is replayed, and no index list is
// kept, except with OrderKind::torch. With TailUnit::batch or Tail::uneven, the number of ranks
// decides which rank takes a sample, not in which step. So a run can stop and resume with any
// number of ranks that divides the global batch, and no sample is lost or repeated. With
// TailUnit::world, the end of an epoch depends on the number of ranks. Epochs advance
// automatically; each has its own order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/order.h"

namespace lockstep {

enum class SampleShard {
  chunk,   // a rank takes consecutive positions
  stride,  // a rank takes every world-th position, as Python's DistributedSampler does
};

enum class Tail {
  drop,    // leaves out the remainder (drop_last); it is different samples in each epoch
  pad,     // fills the last unit with the first positions of the epoch, and reports how many
  uneven,  // every sample once; shards of the last step differ by at most one and can be empty
};

/// The unit that Tail::drop and Tail::pad round an epoch to.
enum class TailUnit {
  batch,  // whole global batches: the same steps at every world size
  world,  // one sample per rank, as Python does: the last batch can be smaller, equal on all ranks
};

struct SamplerOptions {
  std::int64_t global_batch = 1;
  int rank = 0;
  int world = 1;  // number of ranks on all nodes
  SampleShard shard = SampleShard::chunk;
  Tail tail = Tail::drop;
  TailUnit tail_unit = TailUnit::batch;
};

/// The progress of a run through its data. Equal on all ranks.
struct SamplerState {
  std::uint64_t data_id = 0;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // number of positions of the epoch that all ranks have taken

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

/// Writes a state as JSON.
[[nodiscard]] std::string to_json(const SamplerState& state);
/// Reads what to_json wrote. Throws UsageError for any other text.
[[nodiscard]] SamplerState sampler_state_from_json(std::string_view text);

/// This rank's part of one step.
struct StepShard {
  std::vector<std::int64_t> samples;  // of this rank, in order; can be empty with Tail::uneven
  std::int64_t epoch = 0;
  std::int64_t position = 0;        // of the global batch's first sample
  std::int64_t global_samples = 0;  // in the global batch, on all ranks
  std::int64_t repeated = 0;        // of global_samples, how many Tail::pad has repeated
  bool ends_epoch = false;
  SamplerState after;  // the state after this step
};

class Sampler {
 public:
  /// Starts at epoch 0, position 0. `data_id` is Dataset::id(); restore() compares it.
  /// Throws UsageError if the global batch is not divisible by the world (the message lists the
  /// nearest valid sizes), if the rank is not in [0, world), or if an epoch would have no step.
  Sampler(Order order, std::uint64_t data_id, SamplerOptions options);

  /// Returns this rank's shard of the next global batch and advances by one step. After the last
  /// step of an epoch, the next call begins the next epoch. Every rank calls this once per step.
  [[nodiscard]] StepShard next();

  /// Starts `epoch` at its first step. Not required: epochs advance automatically. After restore(),
  /// it would begin the interrupted epoch again.
  /// Throws UsageError for a negative epoch.
  void set_epoch(std::int64_t epoch);
  /// Continues after `state`, in constant time. The state may come from a run with another number
  /// of ranks and another global batch; with the latter, other samples are dropped or padded at the
  /// tail. Throws UsageError if the state belongs to other data or another seed, or if its position
  /// is outside the epoch; the sampler is then unchanged.
  void restore(const SamplerState& state);
  /// The state to pass to restore() to continue with the same next step.
  [[nodiscard]] SamplerState state() const;
  /// state() and restore() as JSON, for checkpoints. load_state_json throws as
  /// sampler_state_from_json and restore() do.
  [[nodiscard]] std::string state_json() const;
  void load_state_json(std::string_view json);

  /// The number of steps from the current position to the end of the epoch.
  [[nodiscard]] std::int64_t steps_left() const;
  /// The number of steps in a whole epoch. Equal on all ranks.
  [[nodiscard]] std::int64_t steps_per_epoch() const;
  [[nodiscard]] const Order& order() const noexcept { return order_; }
  [[nodiscard]] const SamplerOptions& options() const noexcept { return options_; }

 private:
  /// The position at which an epoch entered at `from` ends; with Tail::pad it can exceed the size.
  [[nodiscard]] std::int64_t end_of_epoch(std::int64_t from) const;
  void append(std::int64_t position, std::int64_t count, std::vector<std::int64_t>& samples) const;
  void enter(std::int64_t epoch, std::int64_t position);

  Order order_;
  std::uint64_t data_id_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  std::int64_t end_ = 0;  // of this epoch
  EpochOrder epoch_order_;
};

/// A sampler for evaluation: every sample exactly once per epoch, in the data's order, no padding.
/// Throws as Sampler's constructor does.
[[nodiscard]] Sampler evaluation_sampler(std::int64_t size, std::uint64_t data_id,
                                         std::int64_t global_batch, int rank, int world);

}  // namespace lockstep
