#include "lockstep/train/clip.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
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
    pieces.push_back({range.segment, range.begin, gradients_of(flat, range)});
  }
  return pieces;
}

double norm_of(const FlatParameters& flat, const std::vector<FlatRange>& ranges) {
  const NormGrid grid(flat.layout());
  std::vector<double> cells(static_cast<std::size_t>(grid.num_cells()));
  square_cells(flat, grid, pieces_of(flat, ranges), cells);
  return std::sqrt(total_of_cells(cells));
}

// A DeviceNorm.
at::Tensor norm_there(const FlatParameters& flat, const std::vector<FlatRange>& ranges,
                      double max_norm) {
  const NormGrid grid(flat.layout());
  return norm_on_device(cells_on_device(flat, grid, pieces_of(flat, ranges)), max_norm);
}

// With a non-finite factor each parameter is scaled separately, because padding must stay zero.
void scale_gradients(const FlatParameters& flat, const FlatRange& range, double factor) {
  if (std::isfinite(factor)) return scale(gradients_of(flat, range), factor);
  for (const int index : range.parameters) {
    scale(flat.parameters()[static_cast<std::size_t>(index)].gradient, factor);
  }
}

[[noreturn]] void refuse(const FlatParameters& flat, const std::vector<FlatRange>& ranges,
                         double norm) {
  std::vector<std::string> names;
  for (const auto& range : ranges) {
    for (const int index : range.parameters) {
      const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
      if (has_non_finite(parameter.gradient)) names.push_back(parameter.name);
    }
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
  const auto ranges = present_gradients(flat);
  if (!are_on_one_device(flat, ranges)) return norm_of(flat, ranges);
  return Pending<double>(norm_there(flat, ranges, 0).select(0, kNorm));
}

Pending<double> clip_grad_norm(FlatParameters& flat, double max_norm, const ClipOptions& options) {
  if (!(max_norm >= 0)) {
    throw UsageError(fmt::format("clip_grad_norm with max_norm {}: expected 0 or more", max_norm));
  }
  const auto ranges = present_gradients(flat);
  if (are_on_one_device(flat, ranges)) return clip_there(flat, ranges, max_norm, options);
  const double norm = norm_of(flat, ranges);
  if (options.error_if_non_finite && !std::isfinite(norm)) refuse(flat, ranges, norm);
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return norm;
  for (const auto& range : ranges) scale_gradients(flat, range, factor);
  return norm;
}

}  // namespace lockstep
