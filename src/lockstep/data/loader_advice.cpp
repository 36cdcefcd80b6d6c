#include "lockstep/data/loader_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

double milliseconds_each(std::chrono::nanoseconds sum, std::int64_t batches) {
  return std::chrono::duration<double, std::milli>(sum).count() / static_cast<double>(batches);
}

std::string next_step(double read, double step, const LoaderCapacity& capacity) {
  // The number of workers that read one batch per step, with 10 % reserve for bursts.
  const double wanted = std::ceil(1.1 * read / std::max(step, 1e-6));
  const int most = std::max(1, capacity.cores - 1);  // the step needs a core as well
  if (capacity.workers == 0) {
    return fmt::format(
        "the training thread reads the data itself; set workers = {} to read in the background",
        std::clamp(static_cast<int>(std::min(wanted, 1e6)), 1, most));
  }
  if (wanted <= capacity.workers) {
    return fmt::format(
        "{} workers are enough on average but reads come in bursts; set prefetch = {}",
        capacity.workers, 2 * capacity.prefetch);
  }
  if (capacity.workers < most) {
    return fmt::format("set workers = {}", static_cast<int>(std::min<double>(wanted, most)));
  }
  return fmt::format(
      "{} cores are not enough: apply the transforms once and store the result, or use more cores",
      capacity.cores);
}

}  // namespace

double LoaderTimes::wait_fraction() const noexcept {
  const auto all = std::chrono::duration<double>(wait + step).count();
  return all > 0 ? std::chrono::duration<double>(wait).count() / all : 0;
}

std::optional<std::string> loader_advice(const LoaderTimes& times, const LoaderCapacity& capacity) {
  if (times.batches == 0 || times.wait_fraction() < kStarvingFraction) return {};
  const auto wait = milliseconds_each(times.wait, times.batches);
  const auto step = milliseconds_each(times.step, times.batches);
  const auto read = milliseconds_each(times.read, times.batches);
  return fmt::format(
      "training waits for data: {:.3g} ms per batch, of which {:.3g} ms ({:.0f} %) are spent "
      "waiting; reading a batch takes a worker {:.3g} ms; {}",
      wait + step, wait, 100 * times.wait_fraction(), read, next_step(read, step, capacity));
}

}  // namespace lockstep
