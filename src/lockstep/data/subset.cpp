#include "lockstep/data/subset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/order.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::uint64_t id_of(const Dataset& data, const std::vector<std::int64_t>& indices) {
  const std::uint64_t base = data.id();
  return digest(std::as_bytes(std::span(indices))) ^ digest(std::as_bytes(std::span(&base, 1)));
}

}  // namespace

Subset::Subset(const Dataset& data, std::vector<std::int64_t> indices)
    : data_(data), indices_(std::move(indices)), id_(id_of(data, indices_)) {
  if (indices_.empty()) {
    throw UsageError(fmt::format("a subset of {} has no indices; give one or more", data.name()));
  }
  const auto [least, most] = std::minmax_element(indices_.begin(), indices_.end());
  if (*least < 0 || *most >= data.size()) {
    throw UsageError(fmt::format("index {} is invalid for {}, which has samples 0 to {}",
                                 *least < 0 ? *least : *most, data.name(), data.size() - 1));
  }
}

std::int64_t Subset::size() const { return static_cast<std::int64_t>(indices_.size()); }

void Subset::read(std::span<const std::int64_t> indices, const Rows& rows) const {
  std::vector<std::int64_t> theirs(indices.size());
  std::transform(indices.begin(), indices.end(), theirs.begin(),
                 [this](std::int64_t index) { return indices_[static_cast<std::size_t>(index)]; });
  data_.read(theirs, rows);
}

std::string Subset::name() const {
  return fmt::format("{} of {} samples of {}", size(), data_.size(), data_.name());
}

SplitSamples split_samples(std::int64_t size, double fraction, std::uint64_t seed) {
  const auto num_chosen =
      static_cast<std::int64_t>(std::llround(static_cast<double>(size) * fraction));
  if (num_chosen < 1 || num_chosen >= size) {
    throw UsageError(fmt::format(
        "a fraction of {} of {} samples leaves one part empty; each part needs one or more samples",
        fraction, size));
  }
  SplitSamples parts;
  const auto order = Order(size, {.seed = seed}).epoch(0);
  for (std::int64_t position = 0; position < size; ++position) {
    (position < num_chosen ? parts.chosen : parts.remainder).push_back(order(position));
  }
  std::sort(parts.chosen.begin(), parts.chosen.end());
  std::sort(parts.remainder.begin(), parts.remainder.end());
  return parts;
}

}  // namespace lockstep
