// Whether the loader keeps up with the training step, and which knob to turn when it does not.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Sums over some batches of one rank.
struct LoaderTimes {
  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;
  std::chrono::nanoseconds wait{0};  // the training thread stood still for data
  std::chrono::nanoseconds step{0};  // the training thread did its own work
  std::chrono::nanoseconds read{0};  // workers read and transformed, summed over workers

  /// Of the training thread's time, what it waited: 0 to 1.
  [[nodiscard]] double wait_fraction() const noexcept;
};

struct LoaderCapacity {
  int workers = 0;
  int prefetch = 2;
  int cores = 1;  // that this process may use
};

/// Below this share of waiting there is nothing to say.
constexpr double kStarvingFraction = 0.05;

/// One sentence with the figures and the next thing to try; nothing while the loader keeps up.
[[nodiscard]] std::optional<std::string> loader_advice(const LoaderTimes& times,
                                                       const LoaderCapacity& capacity);

}  // namespace lockstep
