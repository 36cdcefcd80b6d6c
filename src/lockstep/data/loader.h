// A data loader: the batches of this rank, in order, read ahead by worker threads into a fixed ring
// of batch buffers.
//
//   Loader loader(data, {.batch = {.local = 32, .world = world.size()}, .rank = world.rank()});
//   for (auto& batch : loader.epoch()) train(batch.input(), batch.target());
//
// The sequence of batches depends only on data, seed, batch sizes and rank. It does not depend on
// the number of workers, on timing, or on how often the run was stopped and resumed. Workers read
// ahead until the ring is full, also across the end of an epoch.
//
// With LoaderOptions::device a GPU, the tensors of a batch are on that GPU. The copy runs while the
// previous step computes; the current stream of the calling thread waits for it, the host does not.
//
// A loader is used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/batch_sizes.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader_advice.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/transform.h"
#include "lockstep/trace/trace.h"

namespace lockstep {

struct LoaderOptions {
  BatchSizes batch{};         // next() returns local batches; a step has `accumulation` of them
  std::optional<int> rank{};  // world.rank(); required if batch.world > 1
  OrderOptions order{};
  SampleShard shard = SampleShard::chunk;
  Tail tail = Tail::drop;
  TailUnit tail_unit = TailUnit::batch;

  int workers = 0;   // worker threads; 0: next() reads on the calling thread
  int prefetch = 2;  // batches to read ahead, per worker
  std::vector<Transform> transforms{};
  std::int64_t skip_up_to = 0;  // number of unreadable samples to leave out before next() throws
  std::chrono::seconds limit{600};  // time limit for reading one batch, with workers
  at::Device device = at::kCPU;     // of the batches; copies to a GPU overlap with the step

  std::optional<Log> log{};  // receives advice() and skipped samples
  // Borrowed; receives the waits of next(), the reads of workers, and the number of batches that
  // are ready. Null: that of LOCKSTEP_PROFILE, if it is set.
  Trace* trace = nullptr;
};

/// Options for evaluation: each sample exactly once per epoch, in the data's order. The last shards
/// can differ by one sample and can be empty.
[[nodiscard]] LoaderOptions evaluation_options(BatchSizes batch, int rank);

class BatchRange;
struct ReadResult;

class Loader {
 public:
  /// Allocates the ring and starts the workers. Borrows `data`, which must outlive the loader.
  /// Not a collective: ranks need not construct their loaders at the same time.
  /// Throws UsageError as Sampler does, and for invalid options.
  Loader(const Dataset& data, LoaderOptions options);
  Loader(const Dataset&& data, LoaderOptions options) = delete;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  /// Returns when the reads in progress have finished. Batches that were requested but not started
  /// are discarded.
  ~Loader();

  /// Returns the next batch, across epochs without end. The batch's tensors are in the ring; if
  /// the caller keeps them, they are not overwritten.
  /// Returns when the batch has been read.
  /// Throws the data set's error, with the sample's index in front of the message; the next call
  /// reads the same batch again. Throws SystemError if no worker has read the batch within `limit`.
  [[nodiscard]] Batch next();
  /// The batches from the current position to the end of the epoch, for a range-for loop:
  /// for (auto& batch : loader.epoch()). After a loop that was left early, the next epoch()
  /// continues with the following batch; set_epoch() begins the epoch again.
  [[nodiscard]] BatchRange epoch();
  /// The batches of the next `count` optimizer steps, across epochs.
  [[nodiscard]] BatchRange steps(std::int64_t count);

  /// Starts `epoch` at its first batch. Not required: epochs advance automatically. Do not call it
  /// after a resume: the interrupted epoch would begin again.
  /// Throws UsageError for a negative epoch.
  void set_epoch(std::int64_t epoch);
  /// Continues after `state`, in constant time. The state may come from a run with another number
  /// of ranks. Returns when the reads in progress have finished. Throws UsageError as
  /// Sampler::restore does; the loader is then unchanged.
  void restore(const SamplerState& state);
  /// The state after the last step whose batches next() has all returned. Equal on all ranks.
  [[nodiscard]] const SamplerState& state() const noexcept { return state_; }
  /// state() and restore() as JSON, for checkpoints. load_state_json throws as
  /// sampler_state_from_json and restore() do.
  [[nodiscard]] std::string state_json() const { return to_json(state_); }
  void load_state_json(std::string_view json) { restore(sampler_state_from_json(json)); }

  /// The number of optimizer steps in a whole epoch. Equal on all ranks.
  [[nodiscard]] std::int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  /// The fields of a batch, after the transforms.
  [[nodiscard]] const SampleLayout& layout() const noexcept { return *layout_; }
  /// Times and counts, summed since construction.
  [[nodiscard]] const LoaderTimes& times() const noexcept { return times_; }
  /// The number of samples left out so far.
  [[nodiscard]] std::int64_t num_skipped() const noexcept { return num_skipped_; }
  /// If training waits for data: the option to change, judged by the last 50 batches. Empty while
  /// the loader is fast enough.
  [[nodiscard]] const std::optional<std::string>& advice() const noexcept { return advice_; }

 private:
  struct Reading;  // readers and workers

  /// A batch that has been requested: what next() returns once it has been read.
  struct Requested {
    int buffer = 0;
    Batch batch;
    SamplerState after;
  };

  void request_batches();
  void request_next();
  [[nodiscard]] Batch hand_out(ReadResult& result);
  void judge_bad_samples(const ReadResult& result);
  void restart_at(const SamplerState& state, int micro_batch);
  void watch_times(Batch& batch, std::chrono::steady_clock::time_point asked);
  void trace_wait(const BatchMetrics& metrics);

  const Dataset& data_;
  LoaderOptions options_;
  std::shared_ptr<const SampleLayout> layout_;
  Sampler sampler_;
  SamplerState state_;
  StepShard step_;              // the step that is being divided into micro-batches
  int next_micro_batch_ = 0;    // of step_; 0: the sampler's next step
  int skip_micro_batches_ = 0;  // already returned, after a failure within a step
  std::deque<Requested> requested_;
  std::vector<int> free_buffers_;
  std::deque<int> handed_out_;  // buffers whose batches the caller may still use
  std::int64_t num_skipped_ = 0;
  LoaderTimes times_;
  LoaderTimes recent_;  // since the last judgement
  std::optional<std::string> advice_;
  std::optional<std::chrono::steady_clock::time_point> last_hand_out_;
  std::unique_ptr<BatchMemory> memory_;
  std::unique_ptr<Reading> reading_;  // the last member: its threads use the others
};

/// The range of a range-for loop over batches. Iterators throw as Loader::next() does.
class BatchRange {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    explicit Iterator(BatchRange& range) : range_(&range) { advance(); }
    [[nodiscard]] Batch& operator*() noexcept { return *batch_; }
    [[nodiscard]] Batch* operator->() noexcept { return &*batch_; }
    Iterator& operator++() {
      advance();
      return *this;
    }
    void operator++(int) { advance(); }
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t) noexcept {
      return !iterator.batch_;
    }

   private:
    void advance();

    BatchRange* range_;
    std::optional<Batch> batch_;
  };

  /// Constructed by the loader, which must outlive it. Without `steps`: to the end of the epoch.
  BatchRange(Loader& loader, std::optional<std::int64_t> steps) noexcept
      : loader_(&loader), steps_left_(steps), done_(steps && *steps <= 0) {}

  [[nodiscard]] Iterator begin() { return Iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  Loader* loader_;
  std::optional<std::int64_t> steps_left_;
  bool done_;
};

}  // namespace lockstep
