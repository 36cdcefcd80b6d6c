// Which samples this rank takes in which step. Words:
//
//   position      a place in the epoch's order (order.h), counted over all ranks
//   global batch  the B positions that follow the ones of the step before
//   share         what one rank takes of a global batch
//   tail          what an epoch does when its size is no multiple of the global batch
//
// Everything is computed from {seed, epoch, position}: no list is kept, nothing is replayed, and
// the number of ranks decides only who takes a sample, not when. So a run goes on exactly where it
// was at any number of ranks that splits the global batch, and a sample is never lost or repeated.
// Epochs follow each other by themselves, each with an order of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/order.h"

namespace lockstep {

enum class Shard {
  chunk,   // neighbours in the order go to one rank
  stride,  // every world-th position, as Python's DistributedSampler deals them
};

enum class Tail {
  drop,    // what does not fill a unit at the end of the epoch is left out; others next time
  pad,     // filled up with the first positions of the epoch again; how many is reported
  uneven,  // every sample once: shares differ by one at most, the last ones may be empty
};

/// What the tail is measured in.
enum class TailUnit {
  batch,  // whole global batches: the same steps at every world size
  world,  // one sample a rank, as Python does: the last batch may be smaller, but even
};

struct SamplerOptions {
  std::int64_t global_batch = 1;
  int rank = 0;
  int world = 1;  // all ranks on all nodes
  Shard shard = Shard::chunk;
  Tail tail = Tail::drop;
  TailUnit tail_unit = TailUnit::batch;
};

/// Where a run is in its data. The same for all ranks.
struct SamplerState {
  std::uint64_t data_id = 0;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // how many positions of the epoch all ranks together have taken

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

[[nodiscard]] std::string to_json(const SamplerState& state);
/// Throws UsageError for anything but what to_json writes.
[[nodiscard]] SamplerState sampler_state_from_json(std::string_view text);

/// One step of one rank.
struct StepShard {
  std::vector<std::int64_t> samples;  // this rank's, in order; may be empty with an uneven tail
  std::int64_t epoch = 0;
  std::int64_t position = 0;        // of the global batch's first sample
  std::int64_t global_samples = 0;  // in the whole global batch, on all ranks
  std::int64_t repeated = 0;        // of those, how many a padded tail has given before
  bool ends_epoch = false;
  SamplerState after;  // the state once this step is done
};

class Sampler {
 public:
  /// `data_id` is the data set's, to refuse a state that belongs to other data.
  /// Throws UsageError when the global batch does not split over the ranks (it lists the nearest
  /// sizes that do), the rank is none of the world's, or an epoch would have no step at all.
  Sampler(Order order, std::uint64_t data_id, SamplerOptions options);

  /// This rank's share of the next global batch; the epoch after the last is begun by itself.
  [[nodiscard]] StepShard next();

  /// Starts `epoch` at its beginning. Not needed: epochs advance by themselves.
  void set_epoch(std::int64_t epoch);
  /// Goes on after `state`, in constant time. The state may come from another number of ranks and
  /// another global batch. Throws UsageError when it belongs to other data or another seed, or lies
  /// outside the epoch.
  void restore(const SamplerState& state);
  /// What restore() takes, as it is before the next call of next().
  [[nodiscard]] SamplerState state() const;
  /// Both as JSON, for checkpoints. Throws UsageError as sampler_state_from_json and restore() do.
  [[nodiscard]] std::string state_json() const;
  void load_state_json(std::string_view json);

  /// Steps from here to the end of the current epoch.
  [[nodiscard]] std::int64_t steps_left() const;
  /// Steps in an epoch begun at its beginning; every rank has as many.
  [[nodiscard]] std::int64_t steps_per_epoch() const;
  [[nodiscard]] const Order& order() const noexcept { return order_; }
  [[nodiscard]] const SamplerOptions& options() const noexcept { return options_; }

 private:
  /// Where the epoch ends if it is entered at `from`: beyond the size for a padded tail.
  [[nodiscard]] std::int64_t end_of_epoch(std::int64_t from) const;
  void take(std::int64_t position, std::int64_t count, std::vector<std::int64_t>& samples) const;
  void enter(std::int64_t epoch, std::int64_t position);

  Order order_;
  std::uint64_t data_id_;
  SamplerOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  std::int64_t end_ = 0;  // of this epoch
  EpochOrder epoch_order_;
};

/// What evaluation uses: every sample exactly once, in the data's own order, nothing padded.
[[nodiscard]] Sampler evaluation_sampler(std::int64_t size, std::uint64_t data_id,
                                         std::int64_t global_batch, int rank, int world);

}  // namespace lockstep
