#include "lockstep/ddp/power_sgd.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/ddp/low_rank_internal.h"
#include "lockstep/ddp/parameter_memory_internal.h"
#include "lockstep/ddp/power_sgd_plan_internal.h"

namespace lockstep {
namespace {

constexpr auto kKind = "powersgd";

at::ScalarType computed_in(const at::Tensor& values) {
  return values.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The views of one batch in the flat memories of a bucket.
at::Tensor matrices_in(const at::Tensor& memory, const MatrixBatch& batch) {
  const auto count = batch.size() * batch.rows * batch.columns;
  return memory.slice(0, batch.values_begin, batch.values_begin + count)
      .view({batch.size(), batch.rows, batch.columns});
}
at::Tensor left_in(const at::Tensor& memory, const MatrixBatch& batch) {
  const auto count = batch.size() * batch.rank * batch.rows;
  return memory.slice(0, batch.left_begin, batch.left_begin + count)
      .view({batch.size(), batch.rank, batch.rows});
}
at::Tensor right_in(const at::Tensor& memory, const MatrixBatch& batch) {
  const auto count = batch.size() * batch.rank * batch.columns;
  return memory.slice(0, batch.right_begin, batch.right_begin + count)
      .view({batch.size(), batch.rank, batch.columns});
}

// Calls action(parameter, its elements of `memory`).
template <typename Action>
void for_each_matrix(const MatrixBatch& batch, const at::Tensor& memory, const Action& action) {
  auto begin = batch.values_begin;
  for (const auto& matrix : batch.matrices) {
    const auto end = begin + batch.rows * batch.columns;
    action(matrix, memory.slice(0, begin, end));
    begin = end;
  }
}
template <typename Action>
void for_each_plain(const PowerSgdPlan& plan, const at::Tensor& memory, const Action& action) {
  std::int64_t begin = 0;
  for (const auto& parameter : plan.plain) {
    const auto end = begin + parameter.end - parameter.begin;
    action(parameter, memory.slice(0, begin, end));
    begin = end;
  }
}

// Where the state of each matrix is: its error, or Q.
std::vector<ParameterMemory::StateRange> error_ranges(const PowerSgdPlan& plan) {
  std::vector<ParameterMemory::StateRange> ranges;
  for (const auto& batch : plan.batches) {
    auto begin = batch.values_begin;
    for (const auto& matrix : batch.matrices) {
      ranges.push_back({matrix.name, matrix.sizes, begin});
      begin += batch.rows * batch.columns;
    }
  }
  return ranges;
}
std::vector<ParameterMemory::StateRange> factor_ranges(const PowerSgdPlan& plan) {
  std::vector<ParameterMemory::StateRange> ranges;
  for (const auto& batch : plan.batches) {
    auto begin = batch.right_begin;
    for (const auto& matrix : batch.matrices) {
      ranges.push_back({matrix.name, {batch.rank, batch.columns}, begin});
      begin += batch.rank * batch.columns;
    }
  }
  return ranges;
}

// Random Q of all matrices, for `step`.
at::Tensor random_factors(const PowerSgdPlan& plan, std::uint64_t seed, std::int64_t step,
                          const at::TensorOptions& options) {
  std::vector<at::Tensor> parts;
  for (const auto& range : factor_ranges(plan)) {
    parts.push_back(random_rows(range.sizes[0], range.sizes[1], seed, range.name, step).flatten());
  }
  return at::cat(parts).to(options);
}

PowerSgdOptions checked(const PowerSgdOptions& options) {
  if (options.rank < 1) {
    throw UsageError(fmt::format("PowerSGD: rank is {}; it must be at least 1", options.rank));
  }
  if (options.start_step < 0) {
    throw UsageError(fmt::format("PowerSGD: start_step is {}; it must be 0 or a number of steps",
                                 options.start_step));
  }
  if (!(options.min_ratio > 0)) {
    throw UsageError(
        fmt::format("PowerSGD: min_ratio is {}; it must be above 0", options.min_ratio));
  }
  return options;
}

}  // namespace

struct PowerSgd::State {
  // What one bucket needs in every step.
  struct BucketState {
    PowerSgdPlan plan;
    at::Tensor first_factors;  // random: replaces rows of Q that vanish
  };
  // The memories of a step.
  struct Memories {
    std::shared_ptr<ParameterMemory::Memory> error;    // `next`: first the matrices
    std::shared_ptr<ParameterMemory::Memory> factors;  // Q
  };

  explicit State(const PowerSgdOptions& the_options) : options(checked(the_options)) {}

  [[nodiscard]] BucketState& state_of(const GradientBucket& bucket);
  [[nodiscard]] Memories memories_of(const GradientBucket& bucket, BucketState& of_bucket);
  [[nodiscard]] bool compresses(const GradientBucket& bucket, const PowerSgdPlan& plan) const {
    return bucket.num_ranks() > 1 && !plan.batches.empty() &&
           (step >= options.start_step || bucket.is_trial());
  }
  void collect(const GradientBucket& bucket, const PowerSgdPlan& plan,
               const Memories& memories) const;
  void prepare_factors(const BucketState& of_bucket, const Memories& memories) const;
  static HookTask reduce(GradientBucket& bucket, std::shared_ptr<State> state);

  const PowerSgdOptions options;
  std::int64_t step = 0;
  ParameterMemory error;
  ParameterMemory factors;
  std::map<int, BucketState> buckets;
};

PowerSgd::State::BucketState& PowerSgd::State::state_of(const GradientBucket& bucket) {
  auto& of_bucket = buckets[bucket.index()];
  if (!has_parameters(bucket, of_bucket.plan.parameters)) {
    of_bucket = {plan_power_sgd(bucket.parameters(), options), {}};
  }
  return of_bucket;
}

PowerSgd::State::Memories PowerSgd::State::memories_of(const GradientBucket& bucket,
                                                       BucketState& of_bucket) {
  const auto index = bucket.index();
  Memories memories{error.of(index), factors.of(index)};
  if (memories.error && memories.factors && of_bucket.first_factors.defined()) return memories;
  const auto& plan = of_bucket.plan;
  const auto tensors = bucket.values().options().dtype(computed_in(bucket.values()));
  of_bucket.first_factors = random_factors(plan, options.seed, 0, tensors);
  memories.error = error.lay_out(index, error_ranges(plan), plan.num_values, tensors).memory;
  auto laid_out = factors.lay_out(index, factor_ranges(plan), plan.num_right, tensors);
  memories.factors = laid_out.memory;
  for (const auto& range : laid_out.fresh) {
    const auto end = range.begin + range.sizes[0] * range.sizes[1];
    memories.factors->now.slice(0, range.begin, end)
        .copy_(of_bucket.first_factors.slice(0, range.begin, end));
  }
  return memories;
}

// The matrices are gradients plus error.
void PowerSgd::State::collect(const GradientBucket& bucket, const PowerSgdPlan& plan,
                              const Memories& memories) const {
  const auto& [now, next] = *memories.error;
  for (const auto& batch : plan.batches) {
    auto begin = batch.values_begin;
    for (const auto& matrix : batch.matrices) {
      const auto end = begin + batch.rows * batch.columns;
      auto to = next.slice(0, begin, end);
      if (options.error_feedback) {
        at::add_out(to, now.slice(0, begin, end), bucket.values_of(matrix));
      } else {
        to.copy_(bucket.values_of(matrix));
      }
      begin = end;
    }
  }
}

// Q of this step, in factors->next.
void PowerSgd::State::prepare_factors(const BucketState& of_bucket,
                                      const Memories& memories) const {
  auto& next = memories.factors->next;
  if (options.warm_start) {
    next.copy_(memories.factors->now);
  } else {
    next.copy_(random_factors(of_bucket.plan, options.seed, step, next.options()));
  }
  for (const auto& batch : of_bucket.plan.batches) {
    orthonormalize(right_in(next, batch), right_in(of_bucket.first_factors, batch));
  }
}

HookTask PowerSgd::State::reduce(GradientBucket& bucket, std::shared_ptr<State> state) {
  auto& of_bucket = state->state_of(bucket);
  const auto& plan = of_bucket.plan;
  const auto count_step = [&] {
    if (bucket.is_last()) bucket.on_commit([state] { ++state->step; });
  };
  if (!state->compresses(bucket, plan)) {
    co_await bucket.all_reduce(bucket.values());
    count_step();
    co_return;
  }
  const auto memories = state->memories_of(bucket, of_bucket);
  const auto& matrices = memories.error->next;
  auto& right = memories.factors->next;
  auto first = bucket.scratch("first call", plan.num_left + plan.num_plain, matrices.scalar_type());
  auto left = first.slice(0, 0, plan.num_left);
  auto plain = first.slice(0, plan.num_left);
  bucket.encode([&] {
    state->collect(bucket, plan, memories);
    state->prepare_factors(of_bucket, memories);
    for (const auto& batch : plan.batches) {
      auto to = left_in(left, batch);
      at::bmm_out(to, right_in(right, batch), matrices_in(matrices, batch).transpose(1, 2));
    }
    for_each_plain(plan, plain, [&](const auto& parameter, at::Tensor to) {
      to.copy_(bucket.values_of(parameter));
    });
  });
  co_await bucket.all_reduce(first);
  bucket.encode([&] {
    for (const auto& batch : plan.batches) {
      orthonormalize(left_in(left, batch), {});
      auto to = right_in(right, batch);
      at::bmm_out(to, left_in(left, batch), matrices_in(matrices, batch));
    }
  });
  co_await bucket.all_reduce(right);
  bucket.decode([&] {
    for_each_plain(plan, plain, [&](const auto& parameter, const at::Tensor& from) {
      bucket.values_of(parameter).copy_(from);
    });
    for (const auto& batch : plan.batches) {
      std::int64_t i = 0;
      for_each_matrix(batch, matrices, [&](const auto& matrix, const at::Tensor& residual) {
        multiply_low_rank(left_in(left, batch)[i], right_in(right, batch)[i],
                          static_cast<double>(bucket.weight()), bucket.values_of(matrix), residual);
        ++i;
      });
    }
  });
  bucket.on_commit([memories, feedback = state->options.error_feedback] {
    if (feedback) memories.error->commit();
    memories.factors->commit();
  });
  count_step();
}

PowerSgd::PowerSgd(const PowerSgdOptions& options) : state_(std::make_shared<State>(options)) {}

GradientHook PowerSgd::hook() const {
  return {[state = state_](GradientBucket& bucket) { return State::reduce(bucket, state); },
          fmt::format("{} rank {} from step {}", kKind, state_->options.rank,
                      state_->options.start_step)};
}

std::int64_t PowerSgd::step() const noexcept { return state_->step; }

std::vector<std::pair<std::string, at::Tensor>> PowerSgd::named_tensors() const {
  return state_->factors.tensors();
}

std::vector<std::pair<std::string, at::Tensor>> PowerSgd::rank_tensors() const {
  return state_->error.tensors();
}

std::string PowerSgd::state_json() const {
  return nlohmann::json{{"kind", kKind},
                        {"rank", state_->options.rank},
                        {"step", state_->step},
                        {"error", nlohmann::json::parse(state_->error.shapes_json())},
                        {"factors", nlohmann::json::parse(state_->factors.shapes_json())}}
      .dump();
}

void PowerSgd::load_state_json(std::string_view json) {
  try {
    const auto saved = nlohmann::json::parse(json);
    const auto kind = saved.at("kind").get<std::string>();
    const auto rank = kind == kKind ? saved.at("rank").get<int>() : 0;
    if (rank != state_->options.rank) {
      throw UsageError(fmt::format(
          "this is the state of compression {}{}, and the program compresses with {} of rank {}; "
          "use the compression of the run that saved it, or another folder",
          kind, kind == kKind ? fmt::format(" of rank {}", rank) : "", kKind,
          state_->options.rank));
    }
    state_->error.load_shapes_json(saved.at("error").dump());
    state_->factors.load_shapes_json(saved.at("factors").dump());
    state_->step = saved.at("step").get<std::int64_t>();
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("the state of PowerSGD is invalid: {}", error.what()));
  }
}

}  // namespace lockstep
