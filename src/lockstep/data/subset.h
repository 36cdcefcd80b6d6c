// A data set that consists of some samples of another data set, for example a validation split.
//
//   const auto parts = split_samples(data.size(), 0.1, seed);
//   const Subset training(data, parts.remainder), validation(data, parts.chosen);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

class Subset final : public Dataset {
 public:
  /// Sample i is sample indices[i] of `data`, which is borrowed. Throws UsageError if `indices` is
  /// empty or has an index outside [0, data.size()).
  Subset(const Dataset& data, std::vector<std::int64_t> indices);
  Subset(const Dataset&& data, std::vector<std::int64_t> indices) = delete;

  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] const SampleLayout& layout() const override { return data_.layout(); }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override;
  /// Depends on the data's id and on the indices.
  [[nodiscard]] std::uint64_t id() const override { return id_; }
  [[nodiscard]] std::string name() const override;

 private:
  const Dataset& data_;
  std::vector<std::int64_t> indices_;
  std::uint64_t id_;
};

struct SplitSamples {
  std::vector<std::int64_t> chosen;
  std::vector<std::int64_t> remainder;
};

/// Splits the indices 0 to size - 1 into a random part of `fraction` × size samples, rounded, and
/// the remainder. Both are in ascending order and depend only on the arguments.
/// Throws UsageError if one part would be empty.
[[nodiscard]] SplitSamples split_samples(std::int64_t size, double fraction, std::uint64_t seed);

}  // namespace lockstep
