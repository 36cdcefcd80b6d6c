// Groups of several ranks on one GPU, as processes: ipc and staged give the bits of the oracle that
// every transport is compared with; a killed rank is named while the host waits for the device, and
// the survivors continue on the same GPU.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_conformance_internal.h"
#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/gpu/watcher.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVictim = 1;  // the rank that is killed

bool has_device() {
  int count = 0;
  return cuda_functions()->count_devices(count).ok() && count > 0;
}

// The real device of this machine.
void use_device(TransportKind kind, std::size_t stage_bytes) {
  SuiteDevice::set(SuiteDevice::Setting{
      .backend = kind == TransportKind::ipc ? BackendKind::ipc : BackendKind::staged,
      .stage_bytes = stage_bytes,
      .functions = &cuda_functions,
      .watcher = &watcher_of_process});
}

class DeviceGroup : public ::testing::TestWithParam<std::tuple<TransportKind, int>> {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no GPU on this machine";
  }
};
INSTANTIATE_TEST_SUITE_P(OneGpu, DeviceGroup,
                         ::testing::Combine(::testing::Values(TransportKind::ipc,
                                                              TransportKind::staged),
                                            ::testing::Values(2, 4)));

TEST_P(DeviceGroup, EveryCollectiveTypeAndOperationGivesTheBitsOfTheOracle) {
  const auto [kind, size] = GetParam();
  (void)testing::run_ranks_as_processes(size, [kind = kind](testing::Rank& self) {
    use_device(kind, 4096);
    const auto world = world_of_processes(self.rank(), self.size());
    const auto group = make_test_group(kind, world, {});
    for (const auto dtype : kDTypes) check_all(*group, 2048, dtype);
    EXPECT_EQ(group->device_kind(), kind == TransportKind::ipc ? "ipc" : "staged");
    self.barrier(self.deadline());
  });
}

// Buckets as Ddp uses them, several in flight, and messages between them.
TEST_P(DeviceGroup, LargeCallsInFlightGiveTheBitsOfTheOracle) {
  const auto [kind, size] = GetParam();
  (void)testing::run_ranks_as_processes(size, [kind = kind](testing::Rank& self) {
    use_device(kind, 1U << 20);
    const auto world = world_of_processes(self.rank(), self.size());
    const auto group = make_test_group(kind, world, {});
    constexpr std::int64_t kCount = 700'001;
    const CallMemory memory(*group, 64U << 20);
    std::vector<std::unique_ptr<CheckedCall>> calls;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const Call call{.kind = Collective::all_reduce,
                      .dtype = seed % 2 == 0 ? DType::float32 : DType::bfloat16,
                      .op = ReduceOp::average,
                      .count = kCount};
      auto span = memory.span(kMemoryKinds[seed % kMemoryKinds.size()]);
      if (!span.empty()) span = span.subspan(seed * (5U << 20), 5U << 20);
      calls.push_back(std::make_unique<CheckedCall>(*group, call, Form::in_place, span, seed));
    }
    for (auto& call : calls) call->wait();
    self.barrier(self.deadline());
  });
}

// The time of the kill, in a file that the ranks find by their parent's pid.
std::string kill_file() { return "/tmp/lockstep-device-kill-" + std::to_string(::getppid()); }

// Calls without end; the host waits for its own stream, as a user's program does.
void reduce_forever(Group& group, std::span<std::byte> bytes, int victim) {
  const auto began = Clock::now();
  const auto functions = SuiteDevice::get();
  while (true) {
    const auto operation =
        group.start(on_device(group, {.kind = Collective::all_reduce,
                                      .dtype = DType::float32,
                                      .count = static_cast<std::int64_t>(bytes.size() / 4),
                                      .name = "bucket",
                                      .input = bytes,
                                      .output = bytes}),
                    nullptr);
    if (group.rank() == victim && Clock::now() - began > std::chrono::milliseconds(300)) {
      std::ofstream(kill_file()) << Clock::now().time_since_epoch().count();
      ::kill(::getpid(), SIGKILL);
    }
    group.make_wait(*operation, SuiteDevice::stream_of(group));
    EXPECT_TRUE(functions->synchronize(SuiteDevice::stream_of(group)).ok());
  }
}

TEST_P(DeviceGroup, AKilledRankIsNamedWithinASecondAndTheOthersContinueOnTheSameGpu) {
  const auto [kind, size] = GetParam();

  const auto outcomes = testing::run_ranks_as_processes(
      size,
      [kind = kind](testing::Rank& self) {
        use_device(kind, 1U << 20);
        std::string text;
        {
          const auto world = world_of_processes(self.rank(), self.size());
          const auto group = make_test_group(kind, world, {});
          const CallMemory memory(*group, 25U << 20);
          try {
            reduce_forever(*group, memory.span(MemoryKind::registered), kVictim);
          } catch (const PeerError& error) {
            const auto now = Clock::now().time_since_epoch().count();
            std::int64_t killed = 0;
            std::ifstream(kill_file()) >> killed;
            const auto seconds = static_cast<double>(now - killed) / 1e9;
            ::printf("rank %d named rank %d after %.3f s: %s\n", self.rank(), error.rank(), seconds,
                     error.what());
            EXPECT_EQ(error.rank(), kVictim) << error.what();
            EXPECT_LT(seconds, 1.0);
          }
        }
        if (self.size() == 2) return;
        const int rank = self.rank() < kVictim ? self.rank() : self.rank() - 1;
        const auto world = world_of_processes(rank, self.size() - 1, 1);
        const auto group = make_test_group(kind, world, {});
        check_all(*group, 2048, DType::float32);
      },
      {.expect = testing::Expect::anything});
  ::unlink(("/tmp/lockstep-device-kill-" + std::to_string(::getpid())).c_str());
  for (int rank = 0; rank < size; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (rank == kVictim) {
      EXPECT_EQ(outcome.signal, SIGKILL) << outcome.output;
    } else {
      EXPECT_TRUE(outcome.succeeded()) << "rank " << rank << ":\n" << outcome.output;
      ::printf("%s", outcome.output.c_str());
    }
  }
}

}  // namespace
}  // namespace lockstep
