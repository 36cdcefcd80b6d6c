// Transforms of samples between data set and batch: crops, flips, noise, conversion. A transform
// runs in the loader's workers, on all rows of a batch. Each sample has its own random stream,
// keyed by (seed, epoch, sample): the result does not depend on the number of workers or ranks, on
// restarts, or on the order of other samples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/base/random.h"
#include "lockstep/data/rows.h"
#include "lockstep/data/sample_layout.h"

namespace lockstep {

/// The random streams of the rows of a batch.
class SampleStreams {
 public:
  /// `stage` is the transform's index in the loader's list, so that two transforms draw different
  /// numbers.
  SampleStreams(std::uint64_t seed, int stage, std::int64_t epoch,
                std::span<const std::int64_t> samples) noexcept
      : key_{seed, random_purpose("transform") + static_cast<std::uint64_t>(stage)},
        epoch_(static_cast<std::uint64_t>(epoch)),
        samples_(samples) {}

  /// The stream of row `row`. Each call returns the stream from its beginning.
  [[nodiscard]] RandomStream operator()(std::int64_t row) const noexcept {
    return {key_, epoch_, static_cast<std::uint64_t>(sample(row))};
  }
  /// The index of the sample in row `row`.
  [[nodiscard]] std::int64_t sample(std::int64_t row) const noexcept {
    return samples_[static_cast<std::size_t>(row)];
  }

 private:
  RandomKey key_;
  std::uint64_t epoch_;
  std::span<const std::int64_t> samples_;
};

struct Transform {
  /// Computes row i of `to` from row i of `from`. Both are the same rows unless `layout` is set.
  /// The loader's workers call it concurrently. An exception counts as an error of the sample, as
  /// one of Dataset::read().
  std::function<void(const Rows& from, const Rows& to, const SampleStreams& random)> apply;
  /// The layout of the output, if it differs from the input's.
  std::optional<SampleLayout> layout{};
};

/// A transform that changes rows in place.
[[nodiscard]] inline Transform in_place(
    std::function<void(const Rows& rows, const SampleStreams& random)> change) {
  return {
      .apply = [change = std::move(change)](const Rows& rows, const Rows& /*same*/,
                                            const SampleStreams& random) { change(rows, random); }};
}

}  // namespace lockstep
