#include <algorithm>
#include <cmath>

#include "lockstep/trace/bucket_analysis_internal.h"

namespace lockstep {
namespace {

constexpr double kSmallestBucket = 64 << 10;  // of those that are tried

double duration(const BucketFigures& bucket) {
  return std::max(bucket.done_ms - bucket.all_in_ms, 0.0);
}

// The time at which the first `bytes` of the gradients have arrived: linear within a bucket.
double arrival(std::span<const BucketFigures> buckets, double bytes) {
  double before = 0;
  double since = 0;
  for (const auto& bucket : buckets) {
    const auto own = bucket.count * bucket.bytes;
    if (bytes <= before + own) {
      const auto part = own > 0 ? (bytes - before) / own : 1;
      return since + part * std::max(bucket.ready_ms - since, 0.0);
    }
    before += own;
    since = std::max(since, bucket.ready_ms);
  }
  return since;
}

}  // namespace

ReductionModel fit_reductions(std::span<const BucketFigures> buckets) {
  double count = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& bucket : buckets) {
    count += bucket.count;
    x += bucket.count * bucket.bytes;
    y += bucket.count * duration(bucket);
    xx += bucket.count * bucket.bytes * bucket.bytes;
    xy += bucket.count * bucket.bytes * duration(bucket);
  }
  if (count == 0 || y <= 0) return {};
  const auto spread = count * xx - x * x;
  const ReductionModel mean{.latency_ms = 0, .bytes_per_ms = x / y};
  if (spread <= 1e-9 * count * xx) return mean;
  const auto slope = (count * xy - x * y) / spread;
  const auto latency = (y - slope * x) / count;
  if (slope <= 0) return {.latency_ms = y / count, .bytes_per_ms = 0};
  if (latency <= 0) return mean;
  return {.latency_ms = latency, .bytes_per_ms = 1 / slope};
}

double exposed_with(std::span<const BucketFigures> buckets, const ReductionModel& model,
                    double bucket_bytes) {
  double total = 0;
  for (const auto& bucket : buckets) total += bucket.count * bucket.bytes;
  const auto end_of_backward = arrival(buckets, total);
  double done = 0;
  for (double begin = 0; begin < total; begin += bucket_bytes) {
    const auto end = std::min(begin + bucket_bytes, total);
    done = std::max(done, arrival(buckets, end)) + model.time_of(end - begin);
  }
  return std::max(done - end_of_backward, 0.0);
}

BucketAnalysis analyse_buckets(std::span<const BucketFigures> buckets, double exposed_ms) {
  BucketAnalysis result;
  result.buckets.assign(buckets.begin(), buckets.end());
  std::ranges::sort(result.buckets, {}, &BucketFigures::bucket);
  if (buckets.empty()) return result;
  double reducing = 0;
  for (const auto& bucket : result.buckets) {
    result.total_bytes += bucket.count * bucket.bytes;
    result.count += bucket.count;
    reducing += bucket.count * duration(bucket);
  }
  if (reducing > 0) result.mean_gb_per_s = 1e-6 * result.total_bytes / reducing;
  for (const auto& bucket : result.buckets) {
    if (bucket.gb_per_s < result.mean_gb_per_s / 2) result.slow.push_back(bucket.bucket);
  }
  result.slowest = std::ranges::min(result.buckets, {}, &BucketFigures::gb_per_s).bucket;

  const auto model = fit_reductions(result.buckets);
  const auto whole = model.time_of(result.total_bytes);
  const auto hidden = [&](double exposed, double of) {
    return of > 0 ? std::clamp(1 - exposed / of, 0.0, 1.0) : 0;
  };
  result.overlap = hidden(exposed_ms, std::max(reducing, exposed_ms));
  result.best_bucket_bytes = result.total_bytes;
  double best = exposed_with(result.buckets, model, result.total_bytes);
  for (double bytes = kSmallestBucket; bytes < result.total_bytes; bytes *= 2) {
    const auto exposed = exposed_with(result.buckets, model, bytes);
    // A larger bucket is chosen unless a smaller one is clearly better: it has fewer calls.
    if (exposed < 0.98 * best || (exposed <= best && bytes > result.best_bucket_bytes)) {
      best = exposed;
      result.best_bucket_bytes = bytes;
    }
  }
  result.possible_overlap = std::max(hidden(best, std::max(whole, best)), result.overlap);
  return result;
}

}  // namespace lockstep
