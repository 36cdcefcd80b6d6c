#include "lockstep/machine/copy_rates.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep {
namespace {

// Devices whose copies take as long as the rates below say.
class FakeTimer final : public CopyTimer {
 public:
  [[nodiscard]] int num_devices() const override { return 2; }
  [[nodiscard]] bool has_peer_access(int from, int to) const override { return from < to; }
  [[nodiscard]] double seconds(const CopyPath& path, std::size_t bytes, int repetitions) override {
    ++calls;
    return static_cast<double>(bytes) * repetitions / rate_of(path);
  }

  static double rate_of(const CopyPath& path) {
    if (!path.from) return path.both_ways ? 25e9 : 50e9 + *path.to;
    if (!path.to) return 40e9 + *path.from;
    return *path.from == *path.to ? 2e12 : 100e9 + *path.from;
  }

  int calls = 0;
};

TEST(CopyRates, CoverHostAndEveryPairOfDevices) {
  FakeTimer timer;
  const auto rates = measure_copy_rates(timer, {.bytes = 1000, .repetitions = 4});
  ASSERT_EQ(rates.size(), 2U * 4U + 2U);
  EXPECT_EQ(timer.calls, 20);  // a warm-up before each
  for (const auto& rate : rates) {
    const double copies = rate.path.both_ways ? 2 : 1;
    EXPECT_NEAR(rate.bytes_per_second, copies * FakeTimer::rate_of(rate.path), 1.0);
  }
  EXPECT_EQ(rates[8].path, (CopyPath{.from = 0, .to = 1}));
  EXPECT_FALSE(rates[8].through_the_host);
  EXPECT_TRUE(rates[9].through_the_host);
}

TEST(CopyRates, ArePrintedInGigabytesPerSecond) {
  EXPECT_EQ(
      copy_rate_lines(
          {{.path = {.to = 0}, .bytes_per_second = 54.25e9},
           {.path = {.to = 0, .both_ways = true}, .bytes_per_second = 1e11},
           {.path = {.from = 1, .to = 0}, .bytes_per_second = 9e9, .through_the_host = true}}),
      (std::vector<std::string>{"host -> cuda:0  54.2 GB/s", "host <-> cuda:0  100.0 GB/s",
                                "cuda:1 -> cuda:0  9.0 GB/s, through the host"}));
}

}  // namespace
}  // namespace lockstep
