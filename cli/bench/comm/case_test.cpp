#include "cli/bench/comm/case.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/bench/comm/buffer_plan.h"
#include "cli/bench/comm/jobs.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kMebi = std::size_t{1} << 20;

TEST(BenchCommCase, SizesBecomeWholeElementsAndEqualParts) {
  EXPECT_EQ(whole_case({.bytes = 1023}, 3).bytes, 1020U);
  EXPECT_EQ(whole_case({.op = Collective::all_gather, .bytes = 1024}, 3).bytes, 1020U);
  EXPECT_EQ(whole_case({.op = Collective::scatter, .bytes = 1}, 3).bytes, 12U);
  EXPECT_EQ(whole_case({.op = Collective::reduce_to_owners, .bytes = 1024}, 3).bytes, 1020U);
}

TEST(BenchCommCase, OwnersHaveEvenShardsOfTheWholeArrayInPlace) {
  for (const auto op : {Collective::reduce_to_owners, Collective::gather_from_owners}) {
    const auto timed = whole_case({.op = op, .bytes = 1200}, 3);
    const auto owners = owners_of(timed, 3);
    ASSERT_TRUE(owners);
    EXPECT_EQ(owners->count(), call_of(timed, 3).count);
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(owners->count_of(rank), 100);
    EXPECT_EQ(buffer_layout(timed, 1, 3).output_offset, 0U);
    EXPECT_EQ(buffer_layout(timed, 1, 3).output_bytes, 1200U);
  }
  EXPECT_FALSE(owners_of({.bytes = 1200}, 3));
}

TEST(BenchCommCase, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_to_owners, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::gather_from_owners, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 4), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce, 4), 1);
}

TEST(BenchCommCase, LeastTrafficReadsEachInputAndWritesEachOutputOnce) {
  const double size = 4096;
  const auto traffic = [&](Collective op) { return least_traffic({.op = op, .bytes = 4096}, 4); };
  EXPECT_DOUBLE_EQ(traffic(Collective::all_reduce), 2 * 4 * size);
  EXPECT_DOUBLE_EQ(traffic(Collective::reduce_scatter), 4 * size + size);
  EXPECT_DOUBLE_EQ(traffic(Collective::all_gather), size + 4 * size);
  EXPECT_DOUBLE_EQ(traffic(Collective::broadcast), 4 * size);
  EXPECT_DOUBLE_EQ(traffic(Collective::scatter), 2 * size);
  EXPECT_DOUBLE_EQ(traffic(Collective::reduce_to_owners), 4 * size + size);
  EXPECT_DOUBLE_EQ(traffic(Collective::gather_from_owners), size + 3 * size);
}

TEST(BenchCommCase, ABufferHoldsInputAndOutputOfEveryRank) {
  for (const auto op : timed_collectives()) {
    for (const int ranks : {1, 2, 5}) {
      const auto timed = whole_case({.op = op, .bytes = 1000}, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto layout = buffer_layout(timed, rank, ranks);
        EXPECT_EQ(layout.buffer_bytes % kBufferAlignment, 0U);
        EXPECT_EQ(layout.buffer_bytes, buffer_layout(timed, 0, ranks).buffer_bytes)
            << to_string(op);
        EXPECT_LE(layout.input_bytes, layout.buffer_bytes);
        EXPECT_LE(layout.output_offset + layout.output_bytes, layout.buffer_bytes) << to_string(op);
        EXPECT_TRUE(layout.output_offset == 0 || layout.input_bytes <= layout.output_offset);
      }
    }
  }
}

TEST(BenchCommCase, SizesArePrintedInTheLargestWholeUnit) {
  EXPECT_EQ(size_in_words(8), "8 B");
  EXPECT_EQ(size_in_words(1024), "1 KiB");
  EXPECT_EQ(size_in_words(25 * kMebi), "25 MiB");
  EXPECT_EQ(size_in_words(1500), "1500 B");
}

TEST(BenchCommMemory, BuffersRotateThroughTwiceTheCache) {
  CommRequest request{.ranks = 2, .cases = {{.bytes = 1024}, {.bytes = 128 * kMebi}}};
  plan_memory(request, 32 * kMebi);
  EXPECT_EQ(request.rotation_bytes, 64 * kMebi);
  EXPECT_EQ(request.arena_bytes, 192 * kMebi);
}

TEST(BenchCommMemory, ARankNeverTakesMoreThanTheLimit) {
  CommRequest request{.ranks = 2, .cases = {{.bytes = 700 * kMebi}}};
  plan_memory(request, 1024 * kMebi);
  EXPECT_LE(2 * request.arena_bytes, kMostBytesPerRank);
  EXPECT_GE(request.arena_bytes, 700 * kMebi);
  request.cases.front().bytes = 800 * kMebi;
  EXPECT_THROW(plan_memory(request, 1024 * kMebi), UsageError);
  request.cases.front().memory = MemoryKind::ordinary;
  plan_memory(request, 1024 * kMebi);
  EXPECT_LE(request.arena_bytes, kMostBytesPerRank);
}

TEST(BenchCommRequest, RequestAndAnswerSurviveTheirFiles) {
  const auto path = ::testing::TempDir() + "bench_comm_file.json";
  const CommRequest request{.ranks = 3,
                            .cases = {{.op = Collective::all_to_all,
                                       .dtype = DType::bfloat16,
                                       .bytes = 96,
                                       .memory = MemoryKind::ordinary}},
                            .seconds = 0.25,
                            .iterations = 7,
                            .rotation_bytes = 1 << 20,
                            .arena_bytes = 2 << 20,
                            .processors = {{0}, {1, 2}, {3}}};
  write_request(request, path);
  const auto read = read_request(path);
  EXPECT_EQ(read.ranks, 3);
  EXPECT_EQ(read.cases, request.cases);
  EXPECT_EQ(read.seconds, 0.25);
  EXPECT_EQ(read.iterations, 7);
  EXPECT_EQ(read.rotation_bytes, request.rotation_bytes);
  EXPECT_EQ(read.arena_bytes, request.arena_bytes);
  EXPECT_EQ(read.processors, request.processors);

  write_answer({.about = "x 1", .samples = {CommSamples{{1e-6}, {2e-6}, 3e9}, std::nullopt}}, path);
  const auto answer = read_answer(path);
  EXPECT_EQ(answer.about, "x 1");
  ASSERT_EQ(answer.samples.size(), 2U);
  EXPECT_EQ(answer.samples[0]->hot, std::vector{2e-6});
  EXPECT_FALSE(answer.samples[1]);

  std::ofstream(path) << "{\"ranks\": 1}";
  EXPECT_THROW((void)read_request(path), UsageError);
  std::filesystem::remove(path);
  EXPECT_THROW((void)read_request(path), SystemError);
}

TEST(BenchCommRequest, APeerTimesEachCaseOnceInOrdinaryMemory) {
  CommRequest request;
  for (const auto memory : {MemoryKind::registered, MemoryKind::ordinary}) {
    for (const std::size_t bytes : {1024U, 2048U}) {
      request.cases.push_back({.bytes = bytes, .memory = memory});
    }
  }
  const auto cases = peer_request(request).cases;
  ASSERT_EQ(cases.size(), 2U);
  EXPECT_EQ(cases[0], request.cases[2]);
  EXPECT_EQ(cases[1], request.cases[3]);
}

}  // namespace
}  // namespace lockstep::cli
