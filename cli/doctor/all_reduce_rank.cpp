#include "cli/doctor/all_reduce_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "lockstep/collectives/backends.h"
#include "lockstep/fabric/group.h"
#include "lockstep/launch/init.h"

namespace lockstep::cli {
namespace {

constexpr std::int32_t kCount = (1 << 20) / 4;
constexpr int kRounds = 50;

// Small integers: the sum is exact.
std::int32_t value_of(int rank, std::int32_t index) { return (index % 1000) * (rank + 1) + rank; }

}  // namespace

int run_all_reduce_rank(Streams streams) {
  const auto world = init({.timeout = std::chrono::seconds(10)});
  const auto group = make_group(world);
  std::vector<std::int32_t> own(kCount);
  std::vector<std::int32_t> sum(kCount);
  for (std::int32_t i = 0; i < kCount; ++i) {
    own[static_cast<std::size_t>(i)] = value_of(world.rank(), i);
  }
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    group->wait(*group->start({.kind = Collective::all_reduce,
                               .dtype = DType::int32,
                               .count = kCount,
                               .input = std::as_bytes(std::span(own)),
                               .output = std::as_writable_bytes(std::span(sum))},
                              nullptr));
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    for (std::int32_t i = 0; i < kCount; ++i) {
      std::int32_t expected = 0;
      for (int rank = 0; rank < world.size(); ++rank) expected += value_of(rank, i);
      if (sum[static_cast<std::size_t>(i)] == expected) continue;
      streams.error << fmt::format("error: element {} of the sum is {}, expected {}\n", i,
                                   sum[static_cast<std::size_t>(i)], expected);
      return kFailure;
    }
  }
  std::ranges::nth_element(times, times.begin() + kRounds / 2);
  if (world.rank() == 0) {
    streams.out << fmt::format("{}: 1 MiB on {} ranks by {} in {:.0f} us, sum exact\n",
                               kAllReduceResult, world.size(), group->kind(),
                               1e6 * times[kRounds / 2]);
  }
  return kSuccess;
}

}  // namespace lockstep::cli
