// Judges whether the loader is fast enough for the training step, and which option to change if it
// is not.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Sums over a number of batches on one rank.
struct LoaderTimes {
  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds wait{0};  // the training thread was blocked in next()
  std::chrono::nanoseconds step{0};  // the training thread ran between two calls of next()
  std::chrono::nanoseconds read{0};  // reading and transforming, summed over the workers

  /// The fraction of the training thread's time spent in next(): 0 to 1.
  [[nodiscard]] double wait_fraction() const noexcept;
};

struct LoaderCapacity {
  int workers = 0;
  int prefetch = 2;
  int cores = 1;  // available to this process
};

/// Below this fraction of waiting there is no advice.
constexpr double kStarvingFraction = 0.05;

/// One sentence with the measured times and the option to change. Empty while the loader is fast
/// enough.
[[nodiscard]] std::optional<std::string> loader_advice(const LoaderTimes& times,
                                                       const LoaderCapacity& capacity);

}  // namespace lockstep
