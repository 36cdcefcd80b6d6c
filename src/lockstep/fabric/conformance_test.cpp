// The results that every transport must give: each collective, dtype and operation against a serial
// oracle that reduces in the same tree, for 1 to 8 ranks as threads and as processes, and every
// kind of memory.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_conformance_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

const auto kShm = ::testing::Values(TransportKind::shm);
const auto kPlain = ::testing::Values(TransportKind::plain);
INSTANTIATE_TEST_SUITE_P(DeviceThreads, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Range(1, 9)));
INSTANTIATE_TEST_SUITE_P(DeviceProcesses, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 3)));
INSTANTIATE_TEST_SUITE_P(Threads, GroupTest,
                         ::testing::Combine(kShm, ::testing::Values(Ranks::threads),
                                            ::testing::Range(1, 9)));
INSTANTIATE_TEST_SUITE_P(PlainThreads, GroupTest,
                         ::testing::Combine(kPlain, ::testing::Values(Ranks::threads),
                                            ::testing::Range(1, 6)));
INSTANTIATE_TEST_SUITE_P(PlainProcesses, GroupTest,
                         ::testing::Combine(kPlain, ::testing::Values(Ranks::processes),
                                            ::testing::Range(2, 6)));
INSTANTIATE_TEST_SUITE_P(TcpThreads, GroupTest,
                         ::testing::Combine(::testing::Values(TransportKind::tcp),
                                            ::testing::Values(Ranks::threads),
                                            ::testing::Values(1, 2, 3, 5, 8)));
INSTANTIATE_TEST_SUITE_P(TcpProcesses, GroupTest,
                         ::testing::Combine(::testing::Values(TransportKind::tcp),
                                            ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 3)));
INSTANTIATE_TEST_SUITE_P(HostsThreads, GroupTest,
                         ::testing::Combine(::testing::Values(TransportKind::hosts),
                                            ::testing::Values(Ranks::threads),
                                            ::testing::Values(1, 2, 3, 4, 5, 8)));
INSTANTIATE_TEST_SUITE_P(HostsProcesses, GroupTest,
                         ::testing::Combine(::testing::Values(TransportKind::hosts),
                                            ::testing::Values(Ranks::processes),
                                            ::testing::Values(4)));
INSTANTIATE_TEST_SUITE_P(ThreadsMappedApart, GroupTest,
                         ::testing::Combine(kShm, ::testing::Values(Ranks::apart),
                                            ::testing::Values(1, 2, 5)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kShm, ::testing::Values(Ranks::processes),
                                            ::testing::Range(1, 9)));

TEST_P(GroupTest, EveryCollectiveTypeAndOperationGivesTheBitsOfTheOracle) {
  const auto setting = this->setting();
  run_group(setting, [&](Group& group) {
    ASSERT_EQ(group.size(), setting.size);
    for (const auto dtype : kDTypes) check_all(group, *setting.options.one_shot_bytes, dtype);
  });
}

TEST_P(GroupTest, EveryRankCanBeTheRoot) {
  run_group(setting(), [](Group& group) {
    const CallMemory memory(group, 64U << 10);
    for (int root = 0; root < group.size(); ++root) {
      for (const auto kind : kDataCollectives) {
        if (!has_root(kind)) continue;
        for (const auto where : kMemoryKinds) {
          for (const std::int64_t count : {3, 501}) {
            const Call call{.kind = kind, .dtype = DType::bfloat16, .root = root, .count = count};
            CheckedCall(group, call, Form::apart, memory.span(where), 5).wait();
          }
        }
      }
    }
  });
}

// The default options: inputs up to 16 KiB are inline unless they are in registered memory. Calls
// follow each other without a wait, so that ranks are several calls apart.
TEST_P(GroupTest, CallsOnBothSidesOfEveryDefaultThresholdGiveTheBitsOfTheOracle) {
  auto setting = this->setting();
  setting.options = {.timeout = std::chrono::seconds(30)};
  run_group(setting, [](Group& group) {
    const CallMemory memory(group, 2U << 20);
    std::vector<std::unique_ptr<CheckedCall>> calls;
    std::uint64_t seed = 0;
    for (const std::int64_t bytes : {256, 260, 1024, 4092, 4096, 4100, 8192, 16'384, 16'388}) {
      for (const auto where : kMemoryKinds) {
        for (const auto kind : {Collective::all_reduce, Collective::reduce, Collective::all_gather,
                                Collective::broadcast, Collective::reduce_to_owners,
                                Collective::gather_from_owners}) {
          const Call call{.kind = kind, .dtype = DType::float32, .count = bytes / 4};
          auto span = memory.span(where);
          if (!span.empty()) span = span.subspan(seed % 8 * (256U << 10), 256U << 10);
          if (seed % 8 == 0) {
            for (auto& earlier : calls) earlier->wait();
            calls.clear();
          }
          calls.push_back(std::make_unique<CheckedCall>(
              group, call, seed % 2 == 0 ? Form::apart : Form::in_place, span, seed));
          ++seed;
        }
      }
    }
    for (auto& earlier : calls) earlier->wait();
  });
}

// Ranges of several blocks and windows, each of them cut elsewhere; and owners without a pattern.
TEST_P(GroupTest, LargeCallsWithOwnersGiveTheBitsOfTheOracle) {
  run_group(setting(), [](Group& group) {
    const std::int64_t count = group.size() <= 3 ? 200'003 : 20'003;
    const CallMemory memory(group, 4U << 20);
    const int last = group.size() - 1;
    const Owners few(group.size(),
                     std::vector<OwnedPiece>{{last, 70'001}, {0, 80'000}, {last, 50'002}});
    std::uint64_t seed = 30;
    for (const auto kind : {Collective::reduce_to_owners, Collective::gather_from_owners}) {
      for (const auto where : kMemoryKinds) {
        const Call call{.kind = kind, .dtype = DType::float32, .count = count};
        CheckedCall(group, call, Form::in_place, memory.span(where), ++seed).wait();
      }
      if (count != few.count()) continue;
      const Call call{.kind = kind,
                      .dtype = DType::bfloat16,
                      .op = ReduceOp::average,
                      .count = count,
                      .owners = &few};
      CheckedCall(group, call, Form::in_place, {}, ++seed).wait();
    }
  });
}

}  // namespace
}  // namespace lockstep
