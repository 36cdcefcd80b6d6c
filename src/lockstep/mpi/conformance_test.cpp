// The backend mpi against the serial oracle. mpirun starts this program: every rank runs every
// test, in the same order, and the groups of all tests share one world. The first argument is the
// thread level to request, funneled or serialized; or hosts: only the backend that is chosen; or
// bytes: large sums by it, whose bytes mpi_over_hosts_test.py counts; or kill: a rank kills itself.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/backends.h"
#include "lockstep/fabric/group.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_conformance_internal.h"
#include "lockstep/mpi/connect.h"
#include "lockstep/mpi/init.h"
#include "lockstep/mpi/network_internal.h"
#include "lockstep/shm/connect.h"

namespace lockstep {
namespace {

std::optional<World> world;                // set by main()
int thread_level = MPI_THREAD_SERIALIZED;  // likewise

std::shared_ptr<Group> make_mpi_group(const MpiOptions& options = {.inline_bytes = 1024}) {
  return make_group(*world, {.timeout = std::chrono::seconds(60)}, connect_by_mpi(options));
}

// Ranks 0 and 1, and 2 and 3, are on the same "host". A small stage: larger spans take several
// rounds.
MpiOptions two_ranks_per_host() {
  return {.inline_bytes = 64,
          .within_host = connect_by_shm(),
          .stage_bytes = 16U << 10,
          .host_of = [](int global_rank) { return global_rank / 2; }};
}

// Ranks 0 to 2 are on one "host", all others on another one: the first has two partial sums.
MpiOptions three_ranks_and_others() {
  auto options = two_ranks_per_host();
  options.host_of = [](int global_rank) { return global_rank / 3; };
  return options;
}

TEST(Mpi, TheWorldHasTheRanksOfTheCommunicator) {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(world->rank(), rank);
  EXPECT_EQ(world->size(), size);
  EXPECT_EQ(world->local_size(), size);
  EXPECT_EQ(make_mpi_group()->kind(), "mpi");
}

TEST(Mpi, EveryCollectiveTypeAndOperationGivesTheBitsOfTheOracle) {
  const auto group = make_mpi_group();
  for (const auto dtype : kDTypes) check_all(*group, 256, dtype);
}

// Several pieces per transfer, the last one odd, and more than may be on the way at a time.
TEST(Mpi, LargeCallsGiveTheBitsOfTheOracle) {
  const auto group = make_mpi_group();
  const auto pieces = [](std::size_t count) {
    return static_cast<std::int64_t>(count * MpiNetwork::kMaxPieceBytes / 4);
  };
  std::vector<std::unique_ptr<CheckedCall>> calls;
  for (const std::int64_t count : {pieces(1), pieces(1) + 1, pieces(12) + 3}) {
    for (const auto kind : kDataCollectives) {
      CheckedCall(*group, {.kind = kind, .dtype = DType::float32, .count = count}, Form::apart, {},
                  static_cast<std::uint64_t>(count))
          .wait();
    }
  }
}

TEST(Mpi, CallsOfSeveralGroupsMayBeAwaitedInAnyOrder) {
  const auto group = make_mpi_group();
  const auto backwards = group->split(0, -group->rank());
  const auto pairs = group->split(group->rank() / 2, 0);
  std::vector<std::unique_ptr<CheckedCall>> calls;
  for (std::uint64_t i = 0; i < 20; ++i) {
    for (auto* part : {group.get(), backwards.get(), pairs.get()}) {
      const Call call{.kind = Collective::all_reduce,
                      .dtype = DType::bfloat16,
                      .count = i % 2 == 0 ? 100 : 30'000};
      calls.push_back(
          std::make_unique<CheckedCall>(*part, call, Form::apart, std::span<std::byte>{}, i));
    }
  }
  if (group->rank() % 2 == 1) std::reverse(calls.begin(), calls.end());
  for (auto& call : calls) call->wait();
}

TEST(Mpi, MessagesArriveWholeAndInOrder) {
  const auto group = make_mpi_group();
  const int next = (group->rank() + 1) % group->size();
  const int previous = (group->rank() + group->size() - 1) % group->size();
  for (const std::size_t bytes : {0U, 1U, 16'384U, 16'385U, 3'000'001U}) {
    const auto draw = [&](int from) {
      return oracle::draw(DType::uint8, bytes, bytes, static_cast<std::uint64_t>(from));
    };
    const auto sent = draw(group->rank());
    oracle::Bytes received(bytes);
    const auto count = static_cast<std::int64_t>(bytes);
    const auto out = group->send({.peer = next, .tag = 3, .count = count}, sent, nullptr);
    const auto in = group->receive({.peer = previous, .tag = 3, .count = count}, received, nullptr);
    group->wait(*in);
    group->wait(*out);
    EXPECT_EQ(received, draw(previous)) << bytes << " bytes";
  }
}

TEST(Mpi, ADifferentCallIsNamedAndOtherGroupsStayUsable) {
  const auto group = make_mpi_group();
  const auto other = make_mpi_group();
  if (group->size() == 1) return;
  std::vector<std::byte> bytes(4000);
  const std::int64_t count = group->rank() == 1 ? 999 : 1000;
  const auto used = std::span(bytes).first(static_cast<std::size_t>(4 * count));
  try {
    group->wait(*group->start({.kind = Collective::all_reduce,
                               .dtype = DType::float32,
                               .count = count,
                               .input = used,
                               .output = used},
                              nullptr));
    FAIL() << "different calls have been combined";
  } catch (const PeerError& error) {
    EXPECT_NE(std::string_view(error.what()).find("999"), std::string_view::npos) << error.what();
  }
  CheckedCall(*other, {.kind = Collective::all_reduce, .dtype = DType::float32, .count = 5000},
              Form::apart, {}, 1)
      .wait();
}

TEST(Mpi, HostsOfSeveralRanksGiveTheBitsOfTheOracle) {
  for (const auto& options : {two_ranks_per_host(), three_ranks_and_others()}) {
    const auto group = make_mpi_group(options);
    EXPECT_EQ(group->kind(), "mpi");
    for (const auto dtype : kDTypes) check_all(*group, 256, dtype);
    const CallMemory memory(*group, 1U << 20);
    std::uint64_t seed = 0;
    for (const auto kind : kDataCollectives) {
      const Call call{.kind = kind, .dtype = DType::bfloat16, .count = 20'003};
      const auto where = kMemoryKinds[++seed % kMemoryKinds.size()];
      CheckedCall(*group, call, Form::apart, memory.span(where), seed).wait();
    }
  }
}

// Also between hosts of two ranks, if all have as many.
TEST(Mpi, EveryAlgorithmGivesTheBitsOfTheOracle) {
  for (const bool has_hosts : {false, true}) {
    for (const auto algorithm :
         {ExchangeAlgorithm::direct, ExchangeAlgorithm::doubling, ExchangeAlgorithm::halving}) {
      auto options = has_hosts ? two_ranks_per_host() : MpiOptions{.inline_bytes = 64};
      options.exchange.algorithm = algorithm;
      const auto group = make_mpi_group(options);
      std::uint64_t seed = 0;
      for (const auto kind :
           {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce}) {
        for (const auto dtype : kDTypes) {
          for (const auto op : kReduceOps) {
            if (!is_valid_reduction(dtype, op)) continue;
            const auto size = static_cast<std::uint64_t>(group->size());
            const Call call{.kind = kind,
                            .dtype = dtype,
                            .op = op,
                            .root = static_cast<int>(++seed % size),
                            .count = seed % 3 == 0 ? 66 : 701};
            CheckedCall(*group, call, Form::in_place, {}, seed).wait();
          }
        }
      }
    }
  }
}

// Small integers, whose sum is exact in the order of the ring too.
TEST(Mpi, TheRingAddsSmallIntegersExactly) {
  for (const bool has_hosts : {false, true}) {
    auto options = has_hosts ? two_ranks_per_host() : MpiOptions{.inline_bytes = 64};
    options.exchange.is_fast = true;
    const auto group = make_mpi_group(options);
    for (const std::size_t count : {701U, 40'001U}) {
      std::vector<float> values(count, static_cast<float>(1 + group->rank()));
      const auto bytes = std::as_writable_bytes(std::span(values));
      group->wait(*group->start({.kind = Collective::all_reduce,
                                 .dtype = DType::float32,
                                 .count = static_cast<std::int64_t>(count),
                                 .input = bytes,
                                 .output = bytes},
                                nullptr));
      const auto sum = static_cast<float>(group->size() * (group->size() + 1) / 2);
      EXPECT_EQ(values, std::vector<float>(count, sum)) << (has_hosts ? "two per host" : "flat");
    }
  }
}

// With a thread, data move while the ranks compute: no rank calls lockstep here.
TEST(Mpi, DataMoveWhileTheRanksComputeIfMpiAllowsAThread) {
  if (thread_level < MPI_THREAD_SERIALIZED) return;
  const auto group = make_mpi_group();
  std::vector<std::byte> bytes(4U << 20);
  const auto operation = group->start({.kind = Collective::all_reduce,
                                       .dtype = DType::float32,
                                       .count = 1 << 20,
                                       .input = bytes,
                                       .output = bytes},
                                      nullptr);
  const auto limit = Deadline::after(std::chrono::seconds(60));
  while (!operation->done && !limit.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(operation->done);
  group->wait(*operation);
}

// Ranks hand 16 MiB to their thread and sleep: what it has used since is that of the bytes.
TEST(Mpi, TheTimeOfTheThreadIsCounted) {
  const auto group = make_mpi_group();
  const auto before = network_thread_seconds(*world);
  std::vector<std::byte> bytes(16U << 20);
  const auto operation = group->start({.kind = Collective::all_reduce,
                                       .dtype = DType::float32,
                                       .count = 4 << 20,
                                       .input = bytes,
                                       .output = bytes},
                                      nullptr);
  const bool has_thread = thread_level >= MPI_THREAD_SERIALIZED;
  const auto limit = Deadline::after(std::chrono::seconds(60));
  const auto used_so_far = [&] { return network_thread_seconds(*world) - before; };
  while (has_thread && used_so_far() <= 0.0002 && !limit.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto used = used_so_far();
  EXPECT_EQ(used > 0.0002, has_thread) << used << " s: 16 MB are moved at less than 80 GB/s";
  group->wait(*operation);
  if (!has_thread) {
    EXPECT_EQ(used, 0);
  }
}

TEST(Mpi, ACommunicatorOfSomeRanksIsAWorldOfItsOwn) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  {
    const auto own = init(half);
    MPI_Comm_free(&half);  // the world has a duplicate
    const auto group = make_group(own, {}, connect_by_mpi());
    CheckedCall(*group, {.kind = Collective::all_reduce, .dtype = DType::float32, .count = 7000},
                Form::apart, {}, 1)
        .wait();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

// The backend that is chosen for the hosts of the ranks, and its results.
void check_hosts() {
  const auto group = make_group(*world);
  std::printf("rank %d uses %s: %s\n", group->rank(), group->kind().c_str(),
              group->reason().c_str());
  std::fflush(stdout);
  for (const auto dtype : kDTypes) check_all(*group, 256, dtype);
  for (const auto kind : kDataCollectives) {
    const Call call{.kind = kind, .dtype = DType::bfloat16, .count = 300'000};
    CheckedCall(*group, call, Form::apart, {}, 1).wait();
  }
}

// 128 MiB of sums, by the backend that is chosen.
void move_bytes() {
  const auto group = make_group(*world);
  std::vector<std::byte> bytes(16U << 20);
  for (int i = 0; i < 8; ++i) {
    group->wait(*group->start({.kind = Collective::all_reduce,
                               .dtype = DType::float32,
                               .count = 4 << 20,
                               .input = bytes,
                               .output = bytes},
                              nullptr));
  }
}

// Rank 1 kills itself in the middle of a call of many.
[[noreturn]] void lose_a_rank() {
  const auto group = make_mpi_group();
  std::vector<std::byte> bytes(4U << 20);
  try {
    for (int i = 0;; ++i) {
      const auto operation = group->start({.kind = Collective::all_reduce,
                                           .dtype = DType::float32,
                                           .count = 1 << 20,
                                           .input = bytes,
                                           .output = bytes},
                                          nullptr);
      if (i == 20 && group->rank() == 1) (void)std::raise(SIGKILL);
      group->wait(*operation);
    }
  } catch (const Error& error) {
    std::printf("rank %d: %s\n", group->rank(), error.what());
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  std::abort();
}

}  // namespace
}  // namespace lockstep

int main(int num_arguments, char** arguments) {
  ::testing::InitGoogleTest(&num_arguments, arguments);
  const std::string_view what = num_arguments > 1 ? arguments[1] : "serialized";
  const int wanted = what == "funneled" ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED;
  MPI_Init_thread(&num_arguments, &arguments, wanted, &lockstep::thread_level);
  int result = 1;
  try {
    lockstep::world = lockstep::init(MPI_COMM_WORLD, std::chrono::seconds(60));
    if (what == "kill") lockstep::lose_a_rank();
    if (what == "hosts" || what == "bytes") {
      what == "hosts" ? lockstep::check_hosts() : lockstep::move_bytes();
      result = ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
    } else {
      result = RUN_ALL_TESTS();
    }
    lockstep::world.reset();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return result;
}
