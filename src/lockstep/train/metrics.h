// Metrics of training and evaluation, reduced over ranks by their true counts. The mean of the
// ranks' means is wrong when ranks have different numbers of samples or tokens; reduced sums and
// counts are correct.
//
//   Mean loss;
//   Accuracy accuracy;
//   for (auto& batch : loader.epoch()) {
//     const auto logits = net->forward(batch.input());
//     loss.add(loss_of(logits, batch.target()), batch.count());
//     accuracy.add(logits, batch.target());
//   }
//   reduce(group, loss, accuracy);  // one collective call for all metrics
//   if (rank == 0) print(loss.value(), accuracy.value());
//
// Tensors on a GPU are added there. The host waits for the device when a number is read, and in
// reduce().
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/pending.h"

namespace lockstep {

/// A mean, optionally weighted.
struct Mean {
  Pending<double> sum = 0;
  double count = 0;  // number of samples, or the sum of their weights

  /// Adds `value`, the mean over `weight` samples. With weight 0, as for an empty batch, `value` is
  /// ignored.
  void add(double value, double weight = 1);
  /// The same for a zero-dimensional tensor, such as a loss.
  void add(const at::Tensor& value, double weight = 1);
  void add(const Pending<double>& value, double weight = 1);
  /// nullopt when nothing was counted.
  [[nodiscard]] std::optional<double> try_value() const;
  /// Throws UsageError when nothing was counted on any rank.
  [[nodiscard]] double value() const;
  void combine(const Mean& other);

  friend bool operator==(const Mean&, const Mean&) = default;
};

struct AccuracyOptions {
  std::int64_t top = 1;  // correct if the target is among the `top` highest logits
  std::optional<std::int64_t> ignored_class = {};  // targets of this class are not counted
};

/// The fraction of correct predictions.
struct Accuracy {
  Pending<double> correct = 0;
  Pending<double> count = 0;

  /// `logits` has shape (..., classes); `target` has its shape without the last dimension, of
  /// int64. Of equal logits the lower class ranks higher. A row with a NaN is not correct.
  /// Throws UsageError for other shapes or dtypes, and for `top` below 1.
  void add(const at::Tensor& logits, const at::Tensor& target, AccuracyOptions options = {});
  [[nodiscard]] std::optional<double> try_value() const;
  [[nodiscard]] double value() const;
  void combine(const Accuracy& other);

  friend bool operator==(const Accuracy&, const Accuracy&) = default;
};

/// The largest and the smallest value. NaN if any value was NaN.
struct Maximum {
  double largest = -std::numeric_limits<double>::infinity();

  void add(double value) noexcept;
  [[nodiscard]] double value() const noexcept { return largest; }
  void combine(const Maximum& other) noexcept { add(other.largest); }
};
struct Minimum {
  double smallest = std::numeric_limits<double>::infinity();

  void add(double value) noexcept;
  [[nodiscard]] double value() const noexcept { return smallest; }
  void combine(const Minimum& other) noexcept { add(other.smallest); }
};

/// The numbers of all ranks, by rank; reduce() below combines them.
/// Collective: every rank calls this, with the same number of values.
/// Throws PeerError that names a rank that has more or fewer, or is lost.
[[nodiscard]] std::vector<std::vector<double>> gather_metrics(const ProcessGroup& group,
                                                              std::span<const double> own);

/// The numbers of which a metric consists, for communication. For a metric of your own, write
/// numbers_of(), from_numbers() and a member combine().
[[nodiscard]] inline std::array<double, 2> numbers_of(const Mean& m) { return {m.sum, m.count}; }
[[nodiscard]] inline std::array<double, 2> numbers_of(const Accuracy& m) {
  return {m.correct, m.count};
}
[[nodiscard]] inline std::array<double, 1> numbers_of(const Maximum& m) { return {m.largest}; }
[[nodiscard]] inline std::array<double, 1> numbers_of(const Minimum& m) { return {m.smallest}; }
inline void from_numbers(Mean& m, std::span<const double> n) { m = {n[0], n[1]}; }
inline void from_numbers(Accuracy& m, std::span<const double> n) { m = {n[0], n[1]}; }
inline void from_numbers(Maximum& m, std::span<const double> n) { m = {n[0]}; }
inline void from_numbers(Minimum& m, std::span<const double> n) { m = {n[0]}; }

/// Reduces each metric over the group's ranks. The result is bit-identical on all ranks: metrics
/// are combined in the order of ranks.
/// Collective: every rank calls this, with the same metrics in the same order. It makes one call of
/// the group for up to 62 numbers per rank, two for more.
/// Returns when the result is there.
/// Throws PeerError when a rank is lost or has other metrics.
template <typename... Metrics>
void reduce(const ProcessGroup& group, Metrics&... metrics) {
  std::vector<double> own;
  const auto pack = [&](const auto& metric) {
    const auto numbers = numbers_of(metric);
    own.insert(own.end(), numbers.begin(), numbers.end());
  };
  (pack(metrics), ...);
  const auto all = gather_metrics(group, own);
  std::size_t begin = 0;
  const auto combine = [&](auto& metric) {
    const auto length = numbers_of(metric).size();
    auto combined = metric;
    from_numbers(combined, std::span(all.front()).subspan(begin, length));
    for (const auto& numbers : std::span(all).subspan(1)) {
      auto other = metric;
      from_numbers(other, std::span(numbers).subspan(begin, length));
      combined.combine(other);
    }
    metric = combined;
    begin += length;
  };
  (combine(metrics), ...);
}

}  // namespace lockstep
