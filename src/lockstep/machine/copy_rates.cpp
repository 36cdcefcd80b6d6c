#include "lockstep/machine/copy_rates.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string memory_in_words(const std::optional<int>& device) {
  return device ? fmt::format("cuda:{}", *device) : "host";
}

CopyRate measure(CopyTimer& timer, const CopyPath& path, const CopyRateOptions& options) {
  (void)timer.seconds(path, options.bytes, 1);  // allocates, and wakes the link
  const double seconds = timer.seconds(path, options.bytes, options.repetitions);
  const double bytes = static_cast<double>(options.bytes) * options.repetitions;
  CopyRate rate{.path = path, .bytes_per_second = (path.both_ways ? 2 : 1) * bytes / seconds};
  if (path.from && path.to && *path.from != *path.to) {
    rate.through_the_host = !timer.has_peer_access(*path.from, *path.to);
  }
  return rate;
}

}  // namespace

std::vector<CopyRate> measure_copy_rates(CopyTimer& timer, const CopyRateOptions& options) {
  std::vector<CopyPath> paths;
  for (int device = 0; device < timer.num_devices(); ++device) {
    paths.push_back({.to = device});
    paths.push_back({.from = device});
    paths.push_back({.to = device, .both_ways = true});
    paths.push_back({.from = device, .to = device});
  }
  for (int from = 0; from < timer.num_devices(); ++from) {
    for (int to = 0; to < timer.num_devices(); ++to) {
      if (from != to) paths.push_back({.from = from, .to = to});
    }
  }
  std::vector<CopyRate> rates;
  for (const auto& path : paths) rates.push_back(measure(timer, path, options));
  return rates;
}

std::vector<std::string> copy_rate_lines(const std::vector<CopyRate>& rates) {
  std::vector<std::string> lines;
  for (const auto& rate : rates) {
    lines.push_back(fmt::format("{} {} {}  {:.1f} GB/s{}", memory_in_words(rate.path.from),
                                rate.path.both_ways ? "<->" : "->", memory_in_words(rate.path.to),
                                rate.bytes_per_second / 1e9,
                                rate.through_the_host ? ", through the host" : ""));
  }
  return lines;
}

}  // namespace lockstep
