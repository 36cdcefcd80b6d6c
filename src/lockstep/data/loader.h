// Batches for a training loop: samples of this rank, in order, read ahead by worker threads into a
// fixed ring of buffers.
//
//   Loader loader(data, {.batch = {.local = 32, .world = world.size()}, .rank = world.rank()});
//   for (auto& batch : loader.epoch()) train(batch.input(), batch.target());
//
// The stream of batches depends on (data, seed, batch sizes, rank) alone: not on the number of
// workers, on timing, or on how often it was stopped and restored. Reading ahead stops when the
// ring is full and crosses from one epoch into the next.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/batch_sizes.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader_advice.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/batch_memory.h"
#include "lockstep/data/transform.h"
#include "lockstep/trace/sink.h"

namespace lockstep {

struct LoaderOptions {
  BatchSizes batch{};         // the loader hands out local batches, accumulation of them a step
  std::optional<int> rank{};  // world.rank(); required where batch.world > 1
  OrderOptions order{};
  Shard shard = Shard::chunk;
  Tail tail = Tail::drop;
  TailUnit tail_unit = TailUnit::batch;

  int workers = 0;   // 0: the training thread reads in line
  int prefetch = 2;  // batches read ahead for each worker
  std::vector<Transform> transforms{};
  std::int64_t skip_up_to = 0;      // so many unreadable samples are left out; one more is an error
  std::chrono::seconds limit{600};  // for one batch to be read
  std::function<std::unique_ptr<BatchMemory>()> memory = host_batch_memory;

  std::optional<Log> log{};  // for advice and skipped samples
  TraceSink* trace =
      nullptr;  // borrowed; gets spans "data wait" and counters "data bytes", "data ready"
};

/// For evaluation: each sample exactly once, in the data's order; shares may differ by one.
[[nodiscard]] LoaderOptions evaluation_options(BatchSizes batch, int rank);

class BatchRange;
struct ReadResult;

class Loader {
 public:
  /// `data` is borrowed. Throws UsageError as Sampler does, and for numbers that cannot be.
  Loader(const Dataset& data, LoaderOptions options);
  Loader(const Dataset&& data, LoaderOptions options) = delete;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  /// Waits for the reads under way and for no others.
  ~Loader();

  /// The next batch, epoch after epoch without end. Its tensors lie in the ring and may be kept.
  /// Throws what the data set threw, with the sample's number in front; the next call tries the
  /// same batch again. Throws SystemError when no worker is done in time.
  [[nodiscard]] Batch next();
  /// for (auto& batch : loader.epoch()): the batches to the end of the current epoch. One that was
  /// left early goes on where it was; set_epoch begins one again.
  [[nodiscard]] BatchRange epoch();
  /// The next `count` optimizer steps, whatever epochs they fall into.
  [[nodiscard]] BatchRange steps(std::int64_t count);

  /// Starts `epoch` at its beginning. Not needed: epochs advance by themselves.
  void set_epoch(std::int64_t epoch);
  /// Goes on after `state`, which may come from another number of ranks, in constant time.
  /// Throws UsageError as Sampler::restore does.
  void restore(const SamplerState& state);
  /// After the last step whose batches have all been handed out; the same on all ranks.
  [[nodiscard]] const SamplerState& state() const noexcept { return state_; }
  /// Both as JSON, for checkpoints. Throws UsageError as sampler_state_from_json and restore() do.
  [[nodiscard]] std::string state_json() const { return to_json(state_); }
  void load_state_json(std::string_view json) { restore(sampler_state_from_json(json)); }

  [[nodiscard]] std::int64_t steps_per_epoch() const { return sampler_.steps_per_epoch(); }
  [[nodiscard]] const SampleLayout& layout() const noexcept { return *layout_; }
  /// Sums since the beginning.
  [[nodiscard]] const LoaderTimes& times() const noexcept { return times_; }
  /// Samples left out so far.
  [[nodiscard]] std::int64_t num_skipped() const noexcept { return num_skipped_; }
  /// Which knob to turn, judged by the last batches; nothing while the loader keeps up.
  [[nodiscard]] const std::optional<std::string>& advice() const noexcept { return advice_; }

 private:
  struct Reading;  // readers and workers

  /// A batch on its way: what to hand out once it is read.
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

  const Dataset& data_;
  LoaderOptions options_;
  std::shared_ptr<const SampleLayout> layout_;
  Sampler sampler_;
  SamplerState state_;
  StepShard step_;              // being cut into micro-batches
  int next_micro_batch_ = 0;    // of step_; 0: the sampler's next step
  int skip_micro_batches_ = 0;  // after a failure in the middle of a step
  std::deque<Requested> requested_;
  std::vector<int> free_buffers_;
  std::deque<int> handed_out_;  // buffers whose batches the caller may still be using
  std::int64_t num_skipped_ = 0;
  LoaderTimes times_;
  LoaderTimes recent_;  // since the last judgement
  std::optional<std::string> advice_;
  std::optional<std::chrono::steady_clock::time_point> last_hand_out_;
  std::unique_ptr<BatchMemory> memory_;
  std::unique_ptr<Reading> reading_;  // the last member: its threads use the others
};

/// What a range-for runs over.
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

  /// Made by the loader, which outlives it. No count of steps: to the end of the epoch.
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
