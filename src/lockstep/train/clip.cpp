#include "lockstep/train/clip.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/flat/device_walk.h"
#include "lockstep/flat/gradient_norm.h"
#include "lockstep/flat/norm_grid.h"
#include "lockstep/flat/walk.h"
#include "lockstep/kernels/device_passes.h"
#include "lockstep/train/present_gradients_internal.h"

namespace lockstep {
namespace {

std::vector<GradientPiece> pieces_of(const FlatParameters& flat,
                                     const std::vector<FlatRange>& ranges) {
  std::vector<GradientPiece> pieces;
  for (const auto& range : ranges) {
    pieces.push_back({range.segment, range.begin, flat.averages(range)});
  }
  return pieces;
}

// With shards each rank has summed its own cells.
void share_cells(const FlatParameters& flat, const NormGrid& grid, at::Tensor& cells) {
  if (!flat.shards().is_sharded()) return;
  flat.share(cells, owners_of_cells(grid, flat.shards().ownership()));
}

double norm_of(const FlatParameters& flat, const std::vector<FlatRange>& ranges) {
  const NormGrid grid(flat.layout());
  auto cells = at::zeros({grid.num_cells()}, at::kDouble);
  const std::span numbers(cells.mutable_data_ptr<double>(),
                          static_cast<std::size_t>(grid.num_cells()));
  square_cells(flat, grid, pieces_of(flat, ranges), numbers);
  share_cells(flat, grid, cells);
  return std::sqrt(total_of_cells(numbers));
}

// A DeviceNorm.
at::Tensor norm_there(const FlatParameters& flat, const std::vector<FlatRange>& ranges,
                      double max_norm) {
  const NormGrid grid(flat.layout());
  const auto on_device = at::dtype(at::kDouble).device(flat.values(0).device());
  auto cells = ranges.empty() ? at::zeros({grid.num_cells()}, on_device)
                              : cells_on_device(flat, grid, pieces_of(flat, ranges));
  share_cells(flat, grid, cells);
  return norm_on_device(cells, max_norm);
}

// The gradients of parameter `index` that are in `range`.
at::Tensor averages_of(const FlatParameters& flat, const FlatRange& range, int index) {
  const auto& slot = flat.parameters()[static_cast<std::size_t>(index)].slot;
  const auto begin = std::max(range.begin, slot.begin);
  const auto end = std::min(range.end, slot.begin + slot.count);
  return flat.averages(range).narrow(0, begin - range.begin, end - begin);
}

// With a non-finite factor each parameter is scaled separately, because padding must stay zero.
void scale_gradients(const FlatParameters& flat, const FlatRange& range, double factor) {
  if (std::isfinite(factor)) return scale(flat.averages(range), factor);
  for (const int index : range.parameters) scale(averages_of(flat, range, index), factor);
}

[[noreturn]] void refuse(const FlatParameters& flat, const std::vector<FlatRange>& ranges,
                         double norm) {
  const auto parameters = flat.parameters();
  auto found = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kByte);
  for (const auto& range : ranges) {
    for (const int index : range.parameters) {
      if (has_non_finite(averages_of(flat, range, index))) found[index] = 1;
    }
  }
  flat.combine_largest(found);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (found.const_data_ptr<std::uint8_t>()[i] != 0) names.push_back(parameters[i].name);
  }
  throw UsageError(fmt::format(
      "the norm of the gradients is {}, because of {}; skip the step, or find the operation that "
      "produced it",
      norm, names.empty() ? "an overflow of the sum" : fmt::format("{}", fmt::join(names, ", "))));
}

// The number of a DeviceNorm that is the norm.
constexpr std::int64_t kNorm = offsetof(DeviceNorm, norm) / sizeof(double);

Pending<double> clip_there(const FlatParameters& flat, const std::vector<FlatRange>& ranges,
                           double max_norm, const ClipOptions& options) {
  const auto result = norm_there(flat, ranges, max_norm);
  const Pending<double> norm(result.select(0, kNorm));
  if (options.error_if_non_finite && !std::isfinite(norm)) refuse(flat, ranges, norm);
  clip_on_device(flat, ranges, result);
  return norm;
}

}  // namespace

Pending<double> grad_norm(FlatParameters& flat) {
  const bool on_device = are_on_one_device(flat, present_gradients(flat));
  const auto ranges = flat.owned_gradients();
  if (!on_device) return norm_of(flat, ranges);
  return Pending<double>(norm_there(flat, ranges, 0).select(0, kNorm));
}

Pending<double> clip_grad_norm(FlatParameters& flat, double max_norm, const ClipOptions& options) {
  if (!(max_norm >= 0)) {
    throw UsageError(fmt::format("clip_grad_norm with max_norm {}: expected 0 or more", max_norm));
  }
  const bool on_device = are_on_one_device(flat, present_gradients(flat));
  const auto ranges = flat.owned_gradients();
  if (on_device) return clip_there(flat, ranges, max_norm, options);
  const double norm = norm_of(flat, ranges);
  if (options.error_if_non_finite && !std::isfinite(norm)) refuse(flat, ranges, norm);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const auto& range : ranges) scale_gradients(flat, range, factor);
  return norm;
}

}  // namespace lockstep
