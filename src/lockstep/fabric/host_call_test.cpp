// Calls whose data cross the network once per host: for hosts of any sizes, the bits of the
// reduction tree over all ranks. The oracle knows no hosts.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

struct Layout {
  std::string name;
  std::vector<int> hosts;  // by rank
};

std::vector<int> hosts_of(const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (std::size_t host = 0; host < sizes.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(sizes[host]), static_cast<int>(host));
  }
  return hosts;
}

std::vector<Layout> all_layouts() {
  return {{"OneTwoThreeOne", hosts_of({1, 2, 3, 1})},
          {"ThreeFive", hosts_of({3, 5})},
          {"SevenOne", hosts_of({7, 1})},
          {"FourSixes", hosts_of({6, 6, 6, 6})},
          {"OneHost", hosts_of({4})},
          {"OneRankEach", hosts_of({1, 1, 1, 1, 1})},
          {"Interleaved", {0, 1, 0, 1, 2, 0}}};
}

constexpr std::array kKinds{Collective::all_reduce, Collective::reduce_scatter, Collective::reduce,
                            Collective::all_gather, Collective::broadcast};

class HostCallTest : public ::testing::TestWithParam<Layout> {
 protected:
  static void run_layout(const Layout& layout, const GroupBody& body) {
    const auto point = MeetingPoint::of_threads();
    const auto server = point.serve();
    const int size = static_cast<int>(layout.hosts.size());
    testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
      const auto world = point.join(self.rank(), size);
      const auto host_of = [&](int rank) { return layout.hosts[static_cast<std::size_t>(rank)]; };
      // Many ranks on few cores may be silent for seconds.
      const auto connect = connect_by_tcp({.inline_bytes = 64,
                                           .heartbeat = std::chrono::seconds(60),
                                           .within_host = connect_by_shm(),
                                           .stage_bytes = static_cast<std::size_t>(256 * size),
                                           .host_of = host_of});
      body(*make_group(world, {.timeout = std::chrono::seconds(60)}, connect));
    });
  }
};

// Blocks have 256 bytes: most calls take several rounds, and their last block is short. With many
// ranks, only the reductions that round are as large: time grows with the square of the ranks.
TEST_P(HostCallTest, EveryLayoutGivesTheBitsOfTheTreeOverAllRanks) {
  run_layout(GetParam(), [](Group& group) {
    EXPECT_EQ(group.kind(), "hierarchical");
    const auto size = static_cast<std::size_t>(group.size());
    const CallMemory memory(group, 2 * size * 8 * 701 + 64);
    std::uint64_t seed = 0;
    for (const auto kind : kKinds) {
      for (const auto dtype : kDTypes) {
        for (const auto op : kReduceOps) {
          if (reduces(kind) ? !is_valid_reduction(dtype, op) : op != ReduceOp::sum) continue;
          const bool rounds =
              is_floating(dtype) && (op == ReduceOp::sum || op == ReduceOp::average);
          const auto where = kMemoryKinds[++seed % kMemoryKinds.size()];
          const auto form = seed % 5 < 2 && can_be_in_place(kind) ? Form::in_place : Form::apart;
          const Call call{.kind = kind,
                          .dtype = dtype,
                          .op = op,
                          .root = static_cast<int>(seed % size),
                          .count = size > 8 && !rounds ? 67 : 701};
          CheckedCall(group, call, form, memory.span(where), seed).wait();
        }
      }
    }
  });
}

// Calls in flight at the same time, in registered memory: one begins while the results of the
// previous one are read.
TEST_P(HostCallTest, CallsFollowEachOtherWithoutAWait) {
  run_layout(GetParam(), [](Group& group) {
    constexpr std::size_t kCalls = 12;
    const auto size = static_cast<std::size_t>(group.size());
    const auto each = (2 * size * 4 * 300 + 64) / 64 * 64 + 64;
    const auto memory = group.allocate(each * kCalls);
    for (std::uint64_t round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<CheckedCall>> calls;
      for (std::size_t i = 0; i < kCalls; ++i) {
        const Call call{.kind = kKinds[(i + round) % kKinds.size()],
                        .dtype = i % 3 == 0 ? DType::bfloat16 : DType::float32,
                        .op = ReduceOp::average,
                        .root = static_cast<int>(i % size),
                        .count = 300};
        const auto span = memory->bytes().subspan(i * each, each);
        calls.push_back(std::make_unique<CheckedCall>(
            group, call, Form::apart, i % 4 == 3 ? std::span<std::byte>{} : span, 100 * round + i));
      }
      for (auto& call : calls) call->wait();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, HostCallTest, ::testing::ValuesIn(all_layouts()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep
