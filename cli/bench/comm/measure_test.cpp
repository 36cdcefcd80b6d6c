// A run uses the same buffers in the arena that is planned for it as in one of any size.
#include "cli/bench/comm/measure.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/bench/comm/buffer_plan.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kMebi = 1 << 20;

// One rank alone. It notes where the buffers of its calls are.
class Recorder final : public TimedBackend {
 public:
  explicit Recorder(std::size_t bytes) : memory_(bytes) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] bool can(const CommCase&) const override { return true; }
  [[nodiscard]] std::span<std::byte> arena(MemoryKind) override { return memory_; }
  void call(const CommCase&, const CallMemory& memory) override {
    for (const auto byte : memory.input) all_filled_ = all_filled_ && byte != std::byte{0};
    offsets_.push_back(memory.input.data() - memory_.data());
  }
  void barrier() override {}
  void max_over_ranks(std::span<double>) override {}

  [[nodiscard]] const std::vector<std::ptrdiff_t>& offsets() const { return offsets_; }
  [[nodiscard]] bool all_filled() const { return all_filled_; }

 private:
  std::vector<std::byte> memory_;
  std::vector<std::ptrdiff_t> offsets_;
  bool all_filled_ = true;
};

TEST(BenchCommMeasure, AShortRunNeedsNoMoreMemoryThanItTouches) {
  for (const int iterations : {1, 5, 70}) {
    CommRequest planned{
        .ranks = 1,
        .cases = {{.bytes = 1000, .memory = MemoryKind::ordinary},
                  {.op = Collective::all_to_all, .bytes = 65536, .memory = MemoryKind::ordinary}},
        .iterations = iterations};
    auto ample = planned;
    plan_memory(planned, 128 * kMebi);
    EXPECT_LE(planned.arena_bytes, std::max<std::size_t>(2 * iterations, 6) * kMebi);
    ample.arena_bytes = ample.rotation_bytes = 256 * kMebi;
    Recorder one(planned.arena_bytes);
    Recorder other(ample.arena_bytes);
    (void)measure(one, planned, "");
    (void)measure(other, ample, "");
    EXPECT_EQ(one.offsets(), other.offsets()) << iterations;
    EXPECT_TRUE(one.all_filled()) << "a buffer of zeros";
    EXPECT_TRUE(other.all_filled()) << "a buffer of zeros";
    const std::set distinct(one.offsets().begin(), one.offsets().end());
    EXPECT_GE(distinct.size(), static_cast<std::size_t>(iterations));
  }
}

TEST(BenchCommMeasure, InPlaceAddsAreTimedOnlyWhereAllRanksShareOneMemory) {
  CommRequest request{.ranks = 1,
                      .cases = {{.bytes = 1000, .memory = MemoryKind::ordinary}},
                      .iterations = 2,
                      .processors = {{0}}};
  plan_memory(request, kMebi);
  for (const bool on_one_host : {true, false}) {
    request.on_one_host = on_one_host;
    Recorder backend(request.arena_bytes);
    const auto answer = measure(backend, request, "");
    EXPECT_EQ(answer.samples.at(0).value().add_bytes_per_second > 0, on_one_host);
    EXPECT_EQ(request_from_text(to_text(request), "").on_one_host, on_one_host);
  }
}

TEST(BenchCommMeasure, ARunByTimeRotatesThroughTwiceTheCacheAsBefore) {
  CommRequest request{.ranks = 2, .cases = {{.bytes = 64 << 10}}};
  plan_memory(request, 64 * kMebi);
  EXPECT_EQ(request.rotation_bytes, 128 * kMebi);
}

}  // namespace
}  // namespace lockstep::cli
