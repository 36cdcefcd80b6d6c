// What happens to samples between the data set and the batch: crops, flips, noise, conversion. A
// transform runs in the loader's workers, on all rows a worker has read at once. What it draws at
// random comes from a stream of each sample's own, keyed by (seed, epoch, sample): the number of
// workers and ranks, a restart, and the order of other samples change nothing.
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

/// The random streams of the rows at hand.
class SampleStreams {
 public:
  /// `stage` is the transform's place in the loader's list: two transforms never draw the same.
  SampleStreams(std::uint64_t seed, int stage, std::int64_t epoch,
                std::span<const std::int64_t> samples) noexcept
      : key_{seed, random_purpose("transform") + static_cast<std::uint64_t>(stage)},
        epoch_(static_cast<std::uint64_t>(epoch)),
        samples_(samples) {}

  /// The stream of row `row`, from its beginning at each call.
  [[nodiscard]] RandomStream operator()(std::int64_t row) const noexcept {
    return {key_, epoch_, static_cast<std::uint64_t>(sample(row))};
  }
  /// The number of the sample in row `row`.
  [[nodiscard]] std::int64_t sample(std::int64_t row) const noexcept {
    return samples_[static_cast<std::size_t>(row)];
  }

 private:
  RandomKey key_;
  std::uint64_t epoch_;
  std::span<const std::int64_t> samples_;
};

struct Transform {
  /// Makes row i of `to` from row i of `from`; the two are the same rows unless `layout` is set.
  /// Called by several threads at once. What it throws is an error of the sample at hand.
  std::function<void(const Rows& from, const Rows& to, const SampleStreams& random)> apply;
  /// What comes out, where that is not what goes in.
  std::optional<SampleLayout> layout{};
};

/// A transform that changes rows where they are.
[[nodiscard]] inline Transform in_place(
    std::function<void(const Rows& rows, const SampleStreams& random)> change) {
  return {
      .apply = [change = std::move(change)](const Rows& rows, const Rows& /*same*/,
                                            const SampleStreams& random) { change(rows, random); }};
}

}  // namespace lockstep
