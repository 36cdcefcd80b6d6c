// What is measured while training and evaluating, joined over ranks by true counts. The mean of the
// ranks' means is wrong when they saw different numbers of samples or tokens; sums and counts are
// not.
//
//   Mean loss;
//   Accuracy accuracy;
//   for (auto& batch : loader) {
//     …
//     loss.add(batch_loss, batch.count());
//     accuracy.add(logits, target);
//   }
//   reduce(group, loss, accuracy);  // one call for all of them
//   if (rank == 0) print(loss.value(), accuracy.value());
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

namespace lockstep {

/// A mean, weighted or not.
struct Mean {
  double sum = 0;
  double count = 0;  // of samples, or their weights together

  /// `value` is the mean over `weight` samples. With weight 0, as for an empty batch, it is
  /// ignored.
  void add(double value, double weight = 1) noexcept;
  /// The same for a loss without dimensions.
  void add(const at::Tensor& value, double weight = 1);
  /// None when nothing was counted.
  [[nodiscard]] std::optional<double> try_value() const noexcept;
  /// Throws UsageError when nothing was counted, on any rank.
  [[nodiscard]] double value() const;
  void combine(const Mean& other) noexcept;

  friend bool operator==(const Mean&, const Mean&) = default;
};

struct AccuracyOptions {
  std::int64_t top = 1;                            // right when the target is among the best
  std::optional<std::int64_t> ignored_class = {};  // targets of this class are not counted
};

/// How many of how many were right.
struct Accuracy {
  double correct = 0;
  double count = 0;

  /// `logits` is (..., classes), `target` its shape without the last dimension, of int64. Of equal
  /// logits the lower class is the better one; where a score is NaN, none is right.
  void add(const at::Tensor& logits, const at::Tensor& target, AccuracyOptions options = {});
  [[nodiscard]] std::optional<double> try_value() const noexcept;
  [[nodiscard]] double value() const;
  void combine(const Accuracy& other) noexcept;

  friend bool operator==(const Accuracy&, const Accuracy&) = default;
};

/// NaN where any value was.
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

/// Every rank's `own` numbers, by rank: what reduce() below combines. Collective. Throws PeerError
/// naming a rank that has more or fewer of them, or is lost.
[[nodiscard]] std::vector<std::vector<double>> gather_metrics(const ProcessGroup& group,
                                                              std::span<const double> own);

/// How a metric travels: as the numbers it consists of. For a metric of your own, write these two.
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

/// Joins each metric over the group's ranks; every rank has the result, with the same bits: they
/// are joined in the order of ranks. Collective: the same metrics in the same order, one call of
/// the group for up to 62 numbers of a rank, two for more. Returns when it is done. Throws
/// PeerError when a rank is lost or differs.
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
  const auto join = [&](auto& metric) {
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
  (join(metrics), ...);
}

}  // namespace lockstep
