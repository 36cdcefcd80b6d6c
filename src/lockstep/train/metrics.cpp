#include "lockstep/train/metrics.h"

#include <ATen/ops/arange.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/collectives/gather_values.h"

namespace lockstep {
namespace {

std::optional<double> ratio(double sum, double count) noexcept {
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

double ratio_or_throw(double sum, double count) {
  if (const auto found = ratio(sum, count)) return *found;
  throw UsageError(
      "value() of a metric without samples: no rank has added one; use try_value() if this is "
      "expected");
}

void expect_shapes(const at::Tensor& logits, const at::Tensor& target, std::int64_t top) {
  const bool fits =
      logits.dim() == target.dim() + 1 && target.scalar_type() == at::kLong &&
      logits.sizes().slice(0, static_cast<std::size_t>(target.dim())) == target.sizes();
  if (!fits) {
    throw UsageError(fmt::format(
        "accuracy of logits {} and targets {} of {}: expected logits (..., classes) and targets "
        "(...) of int64",
        fmt::join(logits.sizes(), "×"), fmt::join(target.sizes(), "×"),
        c10::toString(target.scalar_type())));
  }
  if (top < 1) throw UsageError(fmt::format("accuracy with top {}: expected at least 1", top));
}

}  // namespace

void Mean::add(double value, double weight) {
  if (weight == 0) return;  // the mean over no samples is NaN
  sum += value * weight;
  count += weight;
}
void Mean::add(const at::Tensor& value, double weight) {
  if (!value.is_cuda()) return add(Pending<double>(value), weight);
  // A copy: the next replay of a CUDA graph writes the next loss to the same memory.
  const auto own = value.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  add(Pending<double>(own), weight);
}
void Mean::add(const Pending<double>& value, double weight) {
  if (weight == 0) return;
  sum += value.times(weight);
  count += weight;
}
std::optional<double> Mean::try_value() const { return ratio(sum, count); }
double Mean::value() const { return ratio_or_throw(sum, count); }
void Mean::combine(const Mean& other) {
  sum += other.sum;
  count += other.count;
}

void Accuracy::add(const at::Tensor& logits, const at::Tensor& target, AccuracyOptions options) {
  expect_shapes(logits, target, options.top);
  if (target.numel() == 0) return;
  auto counted = target.ne(options.ignored_class.value_or(-1));
  if (!options.ignored_class) counted.fill_(true);
  const auto labels = target.masked_fill(counted.logical_not(), 0).unsqueeze(-1);
  const auto own = logits.detach().gather(-1, labels);
  // The number of classes that rank above the target: higher logits, and equal ones of a lower
  // class.
  const auto classes = at::arange(logits.size(-1), labels.options());
  const auto equal_before = logits.detach().eq(own).logical_and(classes.lt(labels));
  const auto before = logits.detach().gt(own).logical_or(equal_before).sum(-1);
  const auto has_nan = logits.detach().isnan().any(-1);
  const auto is_correct = before.lt(options.top).logical_and(has_nan.logical_not());
  correct += Pending<double>(is_correct.logical_and(counted).sum());
  count += Pending<double>(counted.sum());
}
std::optional<double> Accuracy::try_value() const { return ratio(correct, count); }
double Accuracy::value() const { return ratio_or_throw(correct, count); }
void Accuracy::combine(const Accuracy& other) {
  correct += other.correct;
  count += other.count;
}

void Maximum::add(double value) noexcept {
  if (!(value <= largest) && largest == largest) largest = value;
}
void Minimum::add(double value) noexcept {
  if (!(value >= smallest) && smallest == smallest) smallest = value;
}

std::vector<std::vector<double>> gather_metrics(const ProcessGroup& group,
                                                std::span<const double> own) {
  auto all = gather_values(group, own, {.name = "metrics"});
  const auto other =
      std::ranges::find_if(all, [&](const auto& numbers) { return numbers.size() != own.size(); });
  if (other == all.end()) return all;
  const int rank = group.global_rank(static_cast<int>(other - all.begin()));
  throw PeerError(rank,
                  fmt::format("rank {} reduces metrics of {} numbers and rank {} of {}: every rank "
                              "must reduce the same metrics in the same order",
                              rank, other->size(), group.global_rank(group.rank()), own.size()));
}

}  // namespace lockstep
