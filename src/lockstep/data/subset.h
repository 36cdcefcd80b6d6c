// Some samples of another data set, as a data set: for a part that is held out.
//
//   const auto parts = split_samples(data.size(), 0.1, seed);
//   const Subset training(data, parts.remainder), held_out(data, parts.chosen);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

class Subset final : public Dataset {
 public:
  /// Borrows `data`. Sample i is `data`'s sample indices[i]. Throws UsageError for no samples, and
  /// for a number that is none.
  Subset(const Dataset& data, std::vector<std::int64_t> indices);
  Subset(const Dataset&& data, std::vector<std::int64_t> indices) = delete;

  [[nodiscard]] std::int64_t size() const override;
  [[nodiscard]] const SampleLayout& layout() const override { return data_.layout(); }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override;
  /// Of the data and of which samples.
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

/// `share` of the samples, rounded, chosen at random by `seed`, and the others; both in rising
/// order. Throws UsageError when either would be empty.
[[nodiscard]] SplitSamples split_samples(std::int64_t size, double fraction, std::uint64_t seed);

}  // namespace lockstep
