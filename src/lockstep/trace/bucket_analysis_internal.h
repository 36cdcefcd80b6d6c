// The part of the analysis that concerns buckets.
#pragma once

#include <span>

#include "lockstep/trace/run_analysis.h"

namespace lockstep {

/// The time of a reduction of b bytes: latency_ms + b / bytes_per_ms.
struct ReductionModel {
  double latency_ms = 0;
  double bytes_per_ms = 0;

  [[nodiscard]] double time_of(double bytes) const noexcept {
    return latency_ms + (bytes_per_ms > 0 ? bytes / bytes_per_ms : 0);
  }
};

/// Least squares over the buckets; the mean rate without latency if they have one size.
[[nodiscard]] ReductionModel fit_reductions(std::span<const BucketFigures> buckets);

/// The exposed time if the gradients of `buckets` arrived as measured and were reduced in buckets
/// of `bucket_bytes`, one after another.
[[nodiscard]] double exposed_with(std::span<const BucketFigures> buckets,
                                  const ReductionModel& model, double bucket_bytes);

/// `exposed_ms` is the exposed communication per step, without waiting for late ranks.
[[nodiscard]] BucketAnalysis analyse_buckets(std::span<const BucketFigures> buckets,
                                             double exposed_ms);

}  // namespace lockstep
