// Short programs of calls on device memory under many schedules: the double executes the work of
// all ranks in a random order, and every result has the bits of the oracle. 1,000 schedules per
// transport, more if LOCKSTEP_SOAK_SEED is set.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kBufferBytes = 64U << 10;
constexpr std::uint64_t kCalls = 6;
// Of the same group, one after the other: to make a group takes longer than a program.
constexpr std::uint64_t kPrograms = 10;

// All calls are in flight together; each has its own part of the registered memory.
void run_program(Group& group, const CallMemory& memory, std::uint64_t seed) {
  RandomStream random({seed, random_purpose("schedules")}, 0, 0);  // the same on all ranks
  std::vector<std::unique_ptr<CheckedCall>> calls;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const auto kind = kDataCollectives[random.below(kDataCollectives.size())];
    const auto dtype = kDTypes[random.below(kDTypes.size())];
    auto op = kReduceOps[random.below(kReduceOps.size())];
    if (!is_valid_reduction(dtype, op)) op = ReduceOp::sum;
    const Call call{.kind = kind,
                    .dtype = dtype,
                    .op = op,
                    .root = static_cast<int>(random.below(8)) % group.size(),
                    .count = static_cast<std::int64_t>(random.below(500))};
    auto span = memory.span(kMemoryKinds[random.below(kMemoryKinds.size())]);
    if (!span.empty()) span = span.subspan(i * kBufferBytes, kBufferBytes);
    const bool in_place = random.below(2) == 0 && can_be_in_place(kind);
    calls.push_back(std::make_unique<CheckedCall>(
        group, call, in_place ? Form::in_place : Form::apart, span, seed * kCalls + i));
  }
  for (auto& call : calls) call->wait();
}

class Schedules : public ::testing::TestWithParam<TransportKind> {};
INSTANTIATE_TEST_SUITE_P(Transports, Schedules, kDeviceTransports);

TEST_P(Schedules, EveryOrderOfTheDevicesWorkGivesTheBitsOfTheOracle) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) : 1;
  const std::uint64_t count = soak ? 10'000 : 1000;  // per transport
  for (auto seed = first; seed < first + count && !HasFailure(); seed += kPrograms) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto number = seed / kPrograms;  // of the group
    GroupSetting setting;
    setting.transport = GetParam();
    setting.size = 1 + static_cast<int>(number % 8);
    setting.seed = seed;
    setting.lag =
        number / 8 % 4 == 0 ? 8 : 0;  // with a lag, a schedule takes several times as long
    run_group(setting, [&](Group& group) {
      const CallMemory memory(group, kCalls * kBufferBytes);
      for (std::uint64_t i = 0; i < kPrograms; ++i) run_program(group, memory, seed + i);
    });
  }
}

}  // namespace
}  // namespace lockstep
