#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "lockstep/shm/test_thread_memory_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using testing::Rank;

class ShmOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShmOfSize, ::testing::Range(1, 9));

TEST_P(ShmOfSize, SumsFloatsOfEveryLength) {
  const auto memory = std::make_shared<ThreadMemory>();
  testing::run_ranks_as_threads(GetParam(), [&](Rank& self) {
    const auto group = thread_group(memory, self.rank(), self.size());
    for (const std::size_t count : {0U, 1U, 3U, 100U, 1025U, 5000U, 200'000U}) {
      for (const bool shared : {false, true}) {
        std::vector<float> own(count);
        std::shared_ptr<RegisteredMemory> registered;
        std::span<float> values(own);
        if (shared) {
          registered = group->allocate(count * sizeof(float));
          values = {reinterpret_cast<float*>(registered->bytes().data()), count};
        }
        for (std::size_t i = 0; i < count; ++i) {
          values[i] = static_cast<float>(i % 1000) + static_cast<float>(self.rank());
        }
        group->wait(*group->start({.kind = Collective::all_reduce,
                                   .dtype = DType::float32,
                                   .count = static_cast<std::int64_t>(count),
                                   .input = std::as_bytes(values),
                                   .output = std::as_writable_bytes(values)},
                                  nullptr),
                    std::nullopt);
        const auto n = self.size();
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(values[i], static_cast<float>(static_cast<int>(i % 1000) * n + n * (n - 1) / 2))
              << count << " " << shared << " at " << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
