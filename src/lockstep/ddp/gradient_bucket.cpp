#include "lockstep/ddp/gradient_bucket.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/ddp/gradient_bucket_state_internal.h"

namespace lockstep {

// In an all-reduce every rank sends 2 (n - 1) / n of the tensor, in the calls that are half of one
// (n - 1) / n of the longer side.
constexpr double kHalf = 0.5;

std::string GradientBucket::State::name_of_next_call() const {
  return works.empty() ? facts.name : fmt::format("{} call {}", facts.name, works.size());
}

GradientBucket::GradientBucket(State& state) : state_(&state), values_(state.facts.values) {}

at::Tensor GradientBucket::values_of(const BucketParameter& parameter) const {
  return values_.slice(0, parameter.begin, parameter.end);
}

std::span<const BucketParameter> GradientBucket::parameters() const noexcept {
  return state_->facts.parameters;
}
int GradientBucket::index() const noexcept { return state_->facts.index; }
bool GradientBucket::is_last() const noexcept { return state_->facts.is_last; }
int GradientBucket::rank() const noexcept { return state_->groups.gradients.rank(); }
int GradientBucket::num_ranks() const noexcept { return state_->groups.gradients.size(); }
std::int64_t GradientBucket::weight() const noexcept { return state_->facts.weight; }
bool GradientBucket::is_trial() const noexcept { return state_->facts.is_trial; }

std::int64_t GradientBucket::total_weight() const {
  if (!state_->is_suspended) {
    throw UsageError(fmt::format(
        "total_weight() of bucket {} was called before its first call was done: the weights of "
        "the other ranks arrive with that call. Use it after the first co_await",
        index()));
  }
  return std::max<std::int64_t>(1, state_->works.front().flags().sum);
}

Work GradientBucket::all_reduce(at::Tensor& tensor, ReduceOp op) {
  return state_->make_call(op, static_cast<double>(tensor.nbytes()),
                           [&](const ProcessGroup& group, const CallOptions& options) {
                             return group.all_reduce(tensor, op, options);
                           });
}

Work GradientBucket::reduce_scatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return state_->make_call(op, kHalf * static_cast<double>(input.nbytes()),
                           [&](const ProcessGroup& group, const CallOptions& options) {
                             return group.reduce_scatter(output, input, op, options);
                           });
}

Work GradientBucket::all_gather(at::Tensor& output, const at::Tensor& input) {
  return state_->make_call(ReduceOp::sum, kHalf * static_cast<double>(output.nbytes()),
                           [&](const ProcessGroup& group, const CallOptions& options) {
                             return group.all_gather(output, input, options);
                           });
}

Work GradientBucket::all_to_all(at::Tensor& output, const at::Tensor& input) {
  return state_->make_call(ReduceOp::sum, kHalf * static_cast<double>(input.nbytes()),
                           [&](const ProcessGroup& group, const CallOptions& options) {
                             return group.all_to_all(output, input, options);
                           });
}

at::Tensor GradientBucket::scratch(std::string_view name, std::int64_t count,
                                   at::ScalarType dtype) {
  auto& tensor = state_->scratch[{index(), fmt::format("{} {}", level_, name)}];
  if (!tensor.defined() || tensor.numel() != count || tensor.scalar_type() != dtype ||
      tensor.device() != values_.device()) {
    tensor = at::empty({count}, values_.options().dtype(dtype));
  }
  return tensor;
}

void GradientBucket::on_commit(std::function<void()> change) {
  if (!is_trial()) state_->commits.push_back(std::move(change));
}

void GradientBucket::report_non_finite() noexcept { state_->non_finite = true; }

GradientBucket GradientBucket::with_values(at::Tensor values) const {
  if (values.numel() != values_.numel() || !values.is_contiguous()) {
    throw UsageError(
        fmt::format("with_values() of bucket {}: expected a contiguous tensor of {} elements, got "
                    "{}{}; an inner hook finds the parameters at the same positions",
                    index(), values_.numel(), values.numel(),
                    values.is_contiguous() ? "" : ", not contiguous"));
  }
  auto inner = *this;
  inner.values_ = std::move(values);
  ++inner.level_;
  return inner;
}

void GradientBucket::add_encode(Clock::duration time) noexcept { state_->encode += time; }
void GradientBucket::add_decode(Clock::duration time) noexcept { state_->decode += time; }

}  // namespace lockstep
