// Reductions between hosts by every algorithm, on connections: the bits of the oracle's tree, or of
// the ring's order.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/network_data_plane_internal.h"
#include "lockstep/fabric/ring.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

constexpr std::array kReductions{Collective::all_reduce, Collective::reduce_scatter,
                                 Collective::reduce};

struct Setting {
  int size = 2;
  int per_host = 0;  // 0: flat
  ExchangeOptions exchange = {};
};

void run_ranks(const Setting& setting, const GroupBody& body) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(setting.size, [&](testing::Rank& self) {
    const auto world = point.join(self.rank(), setting.size);
    TcpOptions options{.inline_bytes = 64, .heartbeat = std::chrono::seconds(60)};
    options.exchange = setting.exchange;
    if (setting.per_host > 0) {
      options.within_host = connect_by_shm();
      options.stage_bytes = static_cast<std::size_t>(256 * setting.size);
      options.host_of = [&](int rank) { return rank / setting.per_host; };
    }
    body(*make_group(world, {.timeout = std::chrono::seconds(60)}, connect_by_tcp(options)));
  });
}

// All operations; counts that leave parts short or empty; several blocks.
void check_reductions(Group& group, std::span<const DType> dtypes = kDTypes) {
  const auto size = static_cast<std::size_t>(group.size());
  const CallMemory memory(group, 2 * size * 8 * 701 + 64);
  std::uint64_t seed = 0;
  for (const auto kind : kReductions) {
    for (const auto dtype : dtypes) {
      for (const auto op : kReduceOps) {
        if (!is_valid_reduction(dtype, op)) continue;
        const auto where = kMemoryKinds[++seed % kMemoryKinds.size()];
        const Call call{.kind = kind,
                        .dtype = dtype,
                        .op = op,
                        .root = static_cast<int>(seed % size),
                        .count = seed % 3 == 0 ? 66 : 701};
        const auto form = seed % 5 < 2 ? Form::in_place : Form::apart;
        CheckedCall(group, call, form, memory.span(where), seed).wait();
      }
    }
  }
}

class ExactExchange : public ::testing::TestWithParam<std::tuple<ExchangeAlgorithm, int, int>> {
 protected:
  [[nodiscard]] static Setting setting() {
    Setting setting;
    std::tie(setting.exchange.algorithm, setting.size, setting.per_host) = GetParam();
    return setting;
  }
};

TEST_P(ExactExchange, EveryDtypeAndOperationHasTheBitsOfTheTree) {
  run_ranks(setting(), [](Group& group) { check_reductions(group); });
}

// Large calls in flight at the same time, in place: blocks arrive while others are combined.
TEST_P(ExactExchange, CallsFollowEachOtherWithoutAWait) {
  run_ranks(setting(), [](Group& group) {
    constexpr std::size_t kCalls = 4;
    constexpr std::int64_t kCount = 70'003;  // more than a block
    const auto memory = group.allocate(kCalls * 4 * (kCount + 64));
    for (std::uint64_t round = 0; round < 2; ++round) {
      std::vector<std::unique_ptr<CheckedCall>> calls;
      for (std::size_t i = 0; i < kCalls; ++i) {
        const Call call{.kind = Collective::all_reduce,
                        .dtype = i % 3 == 0 ? DType::bfloat16 : DType::float32,
                        .op = ReduceOp::average,
                        .count = kCount};
        const auto span = memory->bytes().subspan(i * 4 * (kCount + 64), 4 * (kCount + 64));
        const bool is_ordinary = i % 4 == 3;
        calls.push_back(std::make_unique<CheckedCall>(group, call, Form::in_place,
                                                      is_ordinary ? std::span<std::byte>{} : span,
                                                      100 * round + i));
      }
      for (auto& call : calls) call->wait();
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<ExactExchange::ParamType>& test) {
  const auto& [algorithm, size, per_host] = test.param;
  return std::string(to_string(algorithm)) + std::to_string(size) +
         (per_host == 0 ? "Flat" : "By" + std::to_string(per_host));
}
constexpr auto kInSteps = {ExchangeAlgorithm::doubling, ExchangeAlgorithm::halving};
INSTANTIATE_TEST_SUITE_P(Flat, ExactExchange,
                         ::testing::Combine(::testing::ValuesIn(kInSteps),
                                            ::testing::Values(2, 3, 5, 7, 8), ::testing::Values(0)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Rails, ExactExchange,
                         ::testing::Values(std::tuple(ExchangeAlgorithm::doubling, 4, 2),
                                           std::tuple(ExchangeAlgorithm::halving, 6, 2),
                                           std::tuple(ExchangeAlgorithm::halving, 8, 4),
                                           std::tuple(ExchangeAlgorithm::doubling, 5, 1),
                                           std::tuple(ExchangeAlgorithm::halving, 12, 4)),
                         name_of);

// No power of two, and more levels than above.
TEST(ExactExchangeOfManyRanks, HasTheBitsOfTheTree) {
  (void)raise_descriptor_limit();  // of one process for all ranks
  for (const auto algorithm : kInSteps) {
    run_ranks({.size = 24, .exchange = {.algorithm = algorithm}}, [](Group& group) {
      check_reductions(group, std::array{DType::bfloat16, DType::int8});
    });
  }
}

// Ranks that would choose other algorithms are told so when the group is created.
TEST(ExchangeSettings, MustBeEqualOnAllRanks) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(2, [&](testing::Rank& self) {
    const auto world = point.join(self.rank(), 2);
    TcpOptions options;
    options.exchange.is_fast = self.rank() == 1;
    try {
      const auto group =
          make_group(world, {.timeout = std::chrono::seconds(30)}, connect_by_tcp(options));
      group->wait(*group->start({.kind = Collective::barrier}, nullptr));
      ADD_FAILURE() << "rank " << self.rank() << " noticed nothing";
    } catch (const PeerError& error) {
      EXPECT_NE(std::string(error.what()).find("sums fast, link 25 us"), std::string::npos)
          << error.what();
    }
  });
}

// The sum of chunk c begins with the input of member c, and each member adds its own in turn.
float ring_sum(const std::vector<std::vector<float>>& inputs, std::size_t chunk, std::size_t i) {
  const auto size = inputs.size();
  float sum = inputs[chunk][i];
  for (std::size_t step = 1; step < size; ++step) sum += inputs[(chunk + step) % size][i];
  return sum;
}

class RingTest : public ::testing::TestWithParam<int> {};

TEST_P(RingTest, AddsInItsOrderAndSendsTheBytesOfATextbook) {
  const int size = GetParam();
  constexpr std::size_t kCount = 64 * 840;  // divisible by every size, in lines
  run_ranks({.size = size, .exchange = {.is_fast = true}}, [&](Group& group) {
    std::vector<std::vector<float>> inputs;
    for (int rank = 0; rank < size; ++rank) {
      inputs.emplace_back(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        inputs.back()[i] = 1.0F / static_cast<float>(1 + i % 97 + static_cast<std::size_t>(rank));
      }
    }
    auto own = inputs[static_cast<std::size_t>(group.rank())];
    const auto bytes = std::as_writable_bytes(std::span(own));
    const auto operation = group.start({.kind = Collective::all_reduce,
                                        .dtype = DType::float32,
                                        .op = ReduceOp::average,
                                        .count = static_cast<std::int64_t>(kCount),
                                        .input = bytes,
                                        .output = bytes},
                                       nullptr);
    group.wait(*operation);
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto chunk = i / (kCount / static_cast<std::size_t>(size));
      ASSERT_EQ(own[i], ring_sum(inputs, chunk, i) / static_cast<float>(size)) << "element " << i;
    }
    const auto& queued = static_cast<const NetworkCall&>(*operation).queued;
    const auto sent = std::accumulate(queued.begin(), queued.end(), std::uint64_t{0});
    EXPECT_EQ(sent, 2 * bytes.size() * static_cast<std::size_t>(size - 1) /
                        static_cast<std::size_t>(size));
  });
}

// Integers that are exact in every order and dtype: also with hosts of several ranks, short chunks
// and 16 bits.
TEST(Ring, IsExactForSmallIntegers) {
  for (const Setting& setting :
       {Setting{.size = 3}, Setting{.size = 5}, Setting{.size = 4, .per_host = 2}}) {
    auto fast = setting;
    fast.exchange.is_fast = true;
    run_ranks(fast, [](Group& group) {
      for (const std::size_t count : {100U, 701U, 40'001U}) {
        std::vector<std::uint16_t> values(count);
        const auto number = static_cast<float>(1 + group.rank());
        for (auto& each : values) each = oracle::kBFloat16.encode(number);
        const auto bytes = std::as_writable_bytes(std::span(values));
        run(group, {.kind = Collective::all_reduce,
                    .dtype = DType::bfloat16,
                    .count = static_cast<std::int64_t>(count),
                    .input = bytes,
                    .output = bytes});
        const auto sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
        for (const auto each : values) ASSERT_EQ(oracle::kBFloat16.decode(each), sum);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RingTest, ::testing::Values(2, 3, 5));

}  // namespace
}  // namespace lockstep
