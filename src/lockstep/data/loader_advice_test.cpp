#include "lockstep/data/loader_advice.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

LoaderTimes times(std::chrono::nanoseconds wait, std::chrono::nanoseconds step,
                  std::chrono::nanoseconds read) {
  return {.batches = 10, .wait = 10 * wait, .step = 10 * step, .read = 10 * read};
}

TEST(LoaderAdvice, IsEmptyWhileTheLoaderIsFastEnough) {
  EXPECT_FALSE(loader_advice(times(1ms, 99ms, 90ms), {.workers = 1, .cores = 4}));
  EXPECT_FALSE(loader_advice({}, {}));
}

TEST(LoaderAdvice, AsksForWorkersIfTheTrainingThreadReads) {
  EXPECT_EQ(loader_advice(times(30ms, 20ms, 30ms), {.workers = 0, .cores = 8}),
            "training waits for data: 50 ms per batch, of which 30 ms (60 %) are spent waiting; "
            "reading a batch takes a worker 30 ms; the training thread reads the data itself; set "
            "workers = 2 to read in the background");
}

TEST(LoaderAdvice, AsksForAsManyWorkersAsAStepNeeds) {
  const auto said = loader_advice(times(30ms, 20ms, 100ms), {.workers = 2, .cores = 16});
  ASSERT_TRUE(said);
  EXPECT_TRUE(said->ends_with("set workers = 6")) << *said;
}

TEST(LoaderAdvice, AsksForPrefetchWhereReadsComeInBursts) {
  const auto said =
      loader_advice(times(5ms, 20ms, 10ms), {.workers = 2, .prefetch = 2, .cores = 16});
  ASSERT_TRUE(said);
  EXPECT_TRUE(said->ends_with("set prefetch = 4")) << *said;
}

TEST(LoaderAdvice, SaysWhenTheCoresAreNotEnough) {
  const auto said = loader_advice(times(30ms, 20ms, 100ms), {.workers = 3, .cores = 4});
  ASSERT_TRUE(said);
  EXPECT_NE(said->find("4 cores are not enough"), std::string::npos) << *said;
}

}  // namespace
}  // namespace lockstep
