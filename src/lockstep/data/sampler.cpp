#include "lockstep/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/batch_sizes.h"

namespace lockstep {
namespace {

void check(const Order& order, const SamplerOptions& options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    throw UsageError(
        fmt::format("SamplerOptions::rank is {}, but .world is {}, with ranks 0 to {}: "
                    "use the world's rank and size",
                    options.rank, options.world, options.world - 1));
  }
  // Throws if the world does not divide the batch.
  (void)derive_batch_sizes({.world = options.world, .global = options.global_batch});
  if (options.tail != Tail::drop) return;
  const auto unit = options.tail_unit == TailUnit::batch ? options.global_batch : options.world;
  if (order.size() < unit) {
    throw UsageError(fmt::format(
        "{} samples are fewer than {} of {}, so an epoch with Tail::drop has no step; use "
        "Tail::pad or Tail::uneven, or a smaller batch",
        order.size(), options.tail_unit == TailUnit::batch ? "a global batch" : "a world", unit));
  }
}

constexpr std::int64_t round_down(std::int64_t value, std::int64_t unit) {
  return value / unit * unit;
}
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::string to_json(const SamplerState& state) {
  // 64-bit ids as text: many JSON readers convert numbers to doubles.
  return nlohmann::json{{"data_id", fmt::format("{:016x}", state.data_id)},
                        {"seed", fmt::format("{}", state.seed)},
                        {"epoch", state.epoch},
                        {"position", state.position}}
      .dump();
}

SamplerState sampler_state_from_json(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    const auto number = [&](const char* name, int base) {
      const auto word = json.at(name).get<std::string>();
      std::size_t used = 0;
      const auto value = std::stoull(word, &used, base);
      if (used != word.size()) throw std::invalid_argument(word);
      return std::uint64_t{value};
    };
    return {number("data_id", 16), number("seed", 10), json.at("epoch").get<std::int64_t>(),
            json.at("position").get<std::int64_t>()};
  } catch (const std::exception& error) {
    throw UsageError(fmt::format(
        "invalid sampler state, expected data_id, seed, epoch and position: {}", error.what()));
  }
}

Sampler::Sampler(Order order, std::uint64_t data_id, SamplerOptions options)
    : order_(order), data_id_(data_id), options_(options), epoch_order_(order_.epoch(0)) {
  check(order_, options_);
  end_ = end_of_epoch(0);
}

StepShard Sampler::next() {
  StepShard step;
  step.epoch = epoch_;
  step.position = position_;
  const auto count = std::min(options_.global_batch, end_ - position_);
  step.global_samples = count;
  step.repeated = std::max<std::int64_t>(0, position_ + count - std::max(order_.size(), position_));
  append(position_, count, step.samples);
  position_ += count;
  step.ends_epoch = position_ >= end_;
  if (step.ends_epoch) enter(epoch_ + 1, 0);
  step.after = state();
  return step;
}

void Sampler::set_epoch(std::int64_t epoch) {
  if (epoch < 0) throw UsageError(fmt::format("epoch {} is invalid; the first epoch is 0", epoch));
  enter(epoch, 0);
}

void Sampler::restore(const SamplerState& state) {
  if (state.data_id != data_id_) {
    throw UsageError(fmt::format(
        "the saved sampler state belongs to other data (saved id {:016x}, this data has "
        "{:016x}); use the data of the saved run, or start without the state",
        state.data_id, data_id_));
  }
  if (state.seed != order_.options().seed) {
    throw UsageError(
        fmt::format("the saved sampler state was made with seed {}, this run has seed {}; "
                    "use the saved seed, or start without the state",
                    state.seed, order_.options().seed));
  }
  if (state.epoch < 0 || state.position < 0 || state.position > order_.size()) {
    throw UsageError(
        fmt::format("the saved sampler state has epoch {}, position {}, which is invalid for {} "
                    "samples; use the data of the saved run, or start without the state",
                    state.epoch, state.position, order_.size()));
  }
  enter(state.epoch, state.position);
}

SamplerState Sampler::state() const { return {data_id_, order_.options().seed, epoch_, position_}; }

std::string Sampler::state_json() const { return to_json(state()); }
void Sampler::load_state_json(std::string_view json) { restore(sampler_state_from_json(json)); }

std::int64_t Sampler::steps_left() const {
  return round_up(end_ - position_, options_.global_batch) / options_.global_batch;
}

std::int64_t Sampler::steps_per_epoch() const {
  return round_up(end_of_epoch(0), options_.global_batch) / options_.global_batch;
}

std::int64_t Sampler::end_of_epoch(std::int64_t from) const {
  const auto left = order_.size() - from;
  const auto unit = options_.tail_unit == TailUnit::batch ? options_.global_batch : options_.world;
  switch (options_.tail) {
    case Tail::drop:
      return from + round_down(left, unit);
    case Tail::pad:
      return from + round_up(left, unit);
    case Tail::uneven:
      break;
  }
  return order_.size();
}

void Sampler::append(std::int64_t position, std::int64_t count,
                     std::vector<std::int64_t>& samples) const {
  const std::int64_t rank = options_.rank;
  const std::int64_t world = options_.world;
  // Shards of a full batch have equal sizes; those of a short batch differ by at most one.
  const auto begin = options_.shard == SampleShard::chunk ? count * rank / world : rank;
  const auto step = options_.shard == SampleShard::chunk ? 1 : world;
  const auto end = options_.shard == SampleShard::chunk ? count * (rank + 1) / world : count;
  const auto mine = end > begin ? (end - begin + step - 1) / step : 0;
  samples.resize(static_cast<std::size_t>(mine));
  for (std::int64_t i = 0; i < mine; ++i) {
    samples[static_cast<std::size_t>(i)] = (position + begin + i * step) % order_.size();
  }
  epoch_order_.look_up(samples);
}

void Sampler::enter(std::int64_t epoch, std::int64_t position) {
  if (epoch != epoch_) {
    epoch_ = epoch;
    epoch_order_ = order_.epoch(epoch);
  }
  position_ = position;
  end_ = end_of_epoch(position);
  // With another batch size, a restored position can leave no step in the epoch.
  if (position_ >= end_) enter(epoch + 1, 0);
}

Sampler evaluation_sampler(std::int64_t size, std::uint64_t data_id, std::int64_t global_batch,
                           int rank, int world) {
  return {Order(size, {.kind = OrderKind::sequential}),
          data_id,
          {.global_batch = global_batch, .rank = rank, .world = world, .tail = Tail::uneven}};
}

}  // namespace lockstep
