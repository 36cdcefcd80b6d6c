#include "lockstep/data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/data/batch_reader_internal.h"
#include "lockstep/data/read_ahead_internal.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// The caller can hold two batches without a new allocation: the current one and, during
// `batch = loader.next()`, the previous one.
constexpr int kHeldByCaller = 2;
// Enough batches for a judgement, few enough for an early warning.
constexpr std::int64_t kBatchesToJudge = 50;

LoaderOptions checked(LoaderOptions options) {
  if (options.workers < 0 || options.prefetch < 1 || options.skip_up_to < 0) {
    throw UsageError(fmt::format(
        "invalid LoaderOptions: workers {}, prefetch {}, skip_up_to {}; workers and skip_up_to "
        "must be at least 0, prefetch at least 1",
        options.workers, options.prefetch, options.skip_up_to));
  }
  const int world = options.batch.world;
  if (!options.rank && world > 1) {
    throw UsageError(fmt::format(
        "LoaderOptions::rank is not set, but batch.world is {}: every rank would read the same "
        "samples; set .rank = world.rank()",
        world));
  }
  if (options.rank && *options.rank >= std::max(world, 1)) {
    throw UsageError(fmt::format(
        "LoaderOptions::rank is {}, but batch.world is {}, with ranks 0 to {}: set the world in "
        "the batch sizes too, for example derive_batch_sizes({{.world = world.size(), .local = "
        "{}}})",
        *options.rank, world, world - 1, options.batch.local));
  }
  for (const auto& transform : options.transforms) {
    if (!transform.apply) throw UsageError("Transform::apply is empty; set it to a function");
  }
  return options;
}

Sampler make_sampler(const Dataset& data, const LoaderOptions& options) {
  return {Order(data.size(), options.order),
          data.id(),
          {.global_batch = options.batch.global(),
           .rank = options.rank.value_or(0),
           .world = options.batch.world,
           .shard = options.shard,
           .tail = options.tail,
           .tail_unit = options.tail_unit}};
}

// The first rows of `whole` as a separate tensor over the same memory. Not a LibTorch view: changes
// of its shape or gradient by the caller must not affect the buffer's tensor.
at::Tensor first_rows(const at::Tensor& whole, std::int64_t count) {
  auto rows = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(whole.storage()),
                                                       whole.key_set(), whole.dtype());
  c10::SmallVector<std::int64_t, 6> shape(whole.sizes().begin(), whole.sizes().end());
  shape[0] = count;
  rows.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return rows;
}

}  // namespace

struct Loader::Reading {
  explicit Reading(BatchReader reader) : in_line(std::move(reader)) {}

  BatchReader in_line;
  std::optional<ReadAhead> ahead;
};

LoaderOptions evaluation_options(BatchSizes batch, int rank) {
  LoaderOptions options;
  options.batch = batch;
  options.rank = rank;
  options.order.kind = OrderKind::sequential;
  options.tail = Tail::uneven;
  return options;
}

Loader::Loader(const Dataset& data, LoaderOptions options)
    : data_(data),
      options_(checked(std::move(options))),
      layout_(
          std::make_shared<const SampleLayout>(layout_after(data.layout(), options_.transforms))),
      sampler_(make_sampler(data, options_)),
      state_(sampler_.state()),
      memory_(batch_memory_on(options_.device)) {
  if (options_.trace == nullptr) options_.trace = process_trace();
  const int num_buffers = options_.workers * options_.prefetch + kHeldByCaller;
  memory_->allocate(*layout_, num_buffers, options_.batch.local);
  for (int buffer = num_buffers - 1; buffer >= 0; --buffer) free_buffers_.push_back(buffer);
  const auto reader = [&] {
    return BatchReader(data_, options_.transforms, options_.order.seed, *layout_, *memory_,
                       options_.batch.local);
  };
  reading_ = std::make_unique<Reading>(reader());
  if (options_.workers > 0) {
    std::vector<BatchReader> readers;
    for (int worker = 0; worker < options_.workers; ++worker) readers.push_back(reader());
    reading_->ahead.emplace(std::move(readers), options_.trace);
  }
}

Loader::~Loader() = default;

Batch Loader::next() {
  const auto asked = Clock::now();
  while (handed_out_.size() >= kHeldByCaller) {
    memory_->recycle(handed_out_.front());
    free_buffers_.push_back(handed_out_.front());
    handed_out_.pop_front();
  }
  request_batches();
  auto& first = requested_.front();
  ReadResult result;
  if (reading_->ahead) {
    first.batch.metrics.ready = reading_->ahead->num_ready();
    result = reading_->ahead->take(Deadline::after(options_.limit));
  } else {
    result =
        reading_->in_line.read({first.buffer, first.batch.epoch, std::move(first.batch.samples)});
  }
  auto done = hand_out(result);
  watch_times(done, asked);
  return done;
}

BatchRange Loader::epoch() { return {*this, std::nullopt}; }

BatchRange Loader::steps(std::int64_t count) { return {*this, count}; }

void Loader::set_epoch(std::int64_t epoch) {
  // Already at the beginning of that epoch: the batches that were read ahead are valid.
  if (state_.epoch == epoch && state_.position == 0 && skip_micro_batches_ == 0 &&
      (requested_.empty() ? next_micro_batch_ : requested_.front().batch.micro_batch) == 0) {
    return;
  }
  sampler_.set_epoch(epoch);
  restart_at(sampler_.state(), 0);
}

void Loader::restore(const SamplerState& state) {
  sampler_.restore(state);  // throws before anything is changed
  restart_at(sampler_.state(), 0);
}

void Loader::request_batches() {
  while (!free_buffers_.empty() && (reading_->ahead || requested_.empty())) request_next();
  LOCKSTEP_ASSERT(!requested_.empty(), "the ring has more buffers than the caller holds");
}

void Loader::request_next() {
  if (next_micro_batch_ == 0) step_ = sampler_.next();
  const auto& sizes = options_.batch;
  const auto micro_batch = next_micro_batch_;
  next_micro_batch_ = static_cast<int>((micro_batch + 1) % sizes.accumulation);
  if (skip_micro_batches_ > micro_batch) return;
  skip_micro_batches_ = 0;

  Requested requested;
  requested.buffer = free_buffers_.back();
  requested.after = step_.after;
  auto& batch = requested.batch;
  const auto shard = std::span(step_.samples);
  const auto begin = std::min(shard.size(), static_cast<std::size_t>(micro_batch * sizes.local));
  const auto mine =
      shard.subspan(begin, std::min(shard.size() - begin, static_cast<std::size_t>(sizes.local)));
  batch.samples.assign(mine.begin(), mine.end());
  batch.epoch = step_.epoch;
  batch.position = step_.position;
  batch.global_samples = step_.global_samples;
  batch.repeated = step_.repeated;
  batch.micro_batch = micro_batch;
  batch.ends_step = next_micro_batch_ == 0;
  batch.ends_epoch = batch.ends_step && step_.ends_epoch;
  batch.layout = layout_;

  free_buffers_.pop_back();
  if (reading_->ahead) reading_->ahead->request({requested.buffer, batch.epoch, batch.samples});
  requested_.push_back(std::move(requested));
}

Batch Loader::hand_out(ReadResult& result) {
  try {
    if (result.failure) std::rethrow_exception(result.failure);
    judge_bad_samples(result);
  } catch (...) {
    restart_at(state_, requested_.front().batch.micro_batch);  // the next call reads it again
    throw;
  }
  auto requested = std::move(requested_.front());
  requested_.pop_front();
  auto& batch = requested.batch;
  for (const auto& bad : result.bad) batch.skipped.push_back(bad.sample);
  memory_->begin_read(requested.buffer);
  batch.samples = std::move(result.samples);
  batch.tensors.reserve(static_cast<std::size_t>(layout_->num_fields()));
  for (const auto& whole : memory_->tensors(requested.buffer)) {
    batch.tensors.push_back(first_rows(whole, batch.count()));
  }
  batch.metrics.bytes = layout_->sample_bytes() * static_cast<std::size_t>(batch.count());
  batch.metrics.read = result.end - result.begin;
  handed_out_.push_back(requested.buffer);
  if (batch.ends_step) state_ = requested.after;
  return std::move(batch);
}

void Loader::judge_bad_samples(const ReadResult& result) {
  const auto allowed = options_.skip_up_to - num_skipped_;
  if (static_cast<std::int64_t>(result.bad.size()) > allowed) {
    std::rethrow_exception(result.bad[static_cast<std::size_t>(allowed)].error);
  }
  for (const auto& bad : result.bad) {
    ++num_skipped_;
    if (!options_.log) continue;
    try {
      std::rethrow_exception(bad.error);
    } catch (const std::exception& error) {
      options_.log->warning(fmt::format("skipped an unreadable sample, {} of at most {}: {}",
                                        num_skipped_, options_.skip_up_to, error.what()));
    }
  }
}

void Loader::restart_at(const SamplerState& state, int micro_batch) {
  if (reading_->ahead) reading_->ahead->forget();
  for (const auto& requested : requested_) free_buffers_.push_back(requested.buffer);
  requested_.clear();
  sampler_.restore(state);
  state_ = state;
  next_micro_batch_ = 0;
  skip_micro_batches_ = micro_batch;
}

void Loader::watch_times(Batch& batch, Clock::time_point asked) {
  const auto now = Clock::now();
  auto& metrics = batch.metrics;
  metrics.wait = now - asked;
  for (auto* sums : {&times_, &recent_}) {
    ++sums->batches;
    sums->samples += batch.count();
    sums->bytes += metrics.bytes;
    sums->wait += metrics.wait;
    sums->read += metrics.read;
    if (last_hand_out_) sums->step += asked - *last_hand_out_;
  }
  last_hand_out_ = now;
  if (options_.trace != nullptr && options_.trace->is_active()) trace_wait(metrics);
  if (recent_.batches < kBatchesToJudge) return;
  const bool starved = advice_.has_value();
  advice_ =
      loader_advice(recent_, {.workers = options_.workers,
                              .prefetch = options_.prefetch,
                              .cores = static_cast<int>(std::thread::hardware_concurrency())});
  recent_ = {};
  if (options_.log && advice_.has_value() != starved) {
    advice_ ? options_.log->warning(*advice_)
            : options_.log->info("the loader is fast enough for the step again");
  }
}

void Loader::trace_wait(const BatchMetrics& metrics) {
  const auto now = TickAnchor::now();
  const auto end = ticks();
  const auto length = static_cast<double>(metrics.wait.count()) / now.nanoseconds_per_tick();
  options_.trace->record({.begin = end - static_cast<Ticks>(length),
                          .end = end,
                          .bytes = static_cast<std::int64_t>(metrics.bytes),
                          .kind = EventKind::data_wait,
                          .lane = Lane::compute});
  options_.trace->record({.begin = end,
                          .end = end,
                          .value = static_cast<double>(metrics.ready),
                          .name = "batches ready",
                          .kind = EventKind::counter,
                          .lane = Lane::loader});
}

void BatchRange::Iterator::advance() {
  batch_.reset();  // first, so that its buffer can be reused
  if (range_->done_) return;
  batch_ = range_->loader_->next();
  if (range_->steps_left_) {
    *range_->steps_left_ -= batch_->ends_step ? 1 : 0;
    range_->done_ = *range_->steps_left_ == 0;
  } else {
    range_->done_ = batch_->ends_epoch;
  }
}

}  // namespace lockstep
