// Calls with owners on doubles of the devices: each rank moves and reduces what it must and nothing
// else, and a failure of any function that they use reaches all ranks. Results are compared by the
// suites of fabric/, which run over all transports.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;

class DeviceOwners : public ::testing::TestWithParam<TransportKind> {
 protected:
  using Fault = DeviceDouble::Fault;

  void TearDown() override { SuiteDevice::set(std::nullopt); }

  // Ranks as threads on one set of doubles; `fault` sees the functions of the device and of NCCL.
  static void run_ranks(int size, const Fault& fault, const GroupBody& body) {
    set_suite_device(GetParam());
    SuiteDevice::get_double().set_fault(fault);
    if (GetParam() == TransportKind::nccl) SuiteDevice::nccl()->set_fault(fault);
    const auto memory = std::make_shared<ThreadMemory>();
    testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
      body(*thread_group(memory, self.rank(), size, {.timeout = 10s}, {}, &SuiteDevice::connect));
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, DeviceOwners, kDeviceTransports);

// Rank 1 owns two ranges, rank 2 nothing.
const Owners& three_ranks() {
  static const Owners owners(3, std::vector<OwnedPiece>{{1, 100}, {0, 60}, {1, 40}});
  return owners;
}

Call call_of(const Group& group, Collective kind, const Owners& owners, std::span<std::byte> span) {
  return on_device(
      group,
      {.kind = kind, .count = owners.count(), .input = span, .output = span, .owners = &owners});
}

TEST_P(DeviceOwners, OnlyOwnedRangesAreReducedAndMoved) {
  std::mutex mutex;
  std::map<std::string, int> counts;  // mutex; by function, of all ranks
  const auto count = [&](std::string_view function) {
    const std::lock_guard lock(mutex);
    ++counts[std::string(function)];
    return DeviceStatus();
  };
  run_ranks(3, count, [&](Group& group) {
    const auto memory = allocate_on_device(group, 200);
    const auto barrier = [&] {
      finish(group, *group.start({.kind = Collective::barrier}, nullptr));
    };
    const auto make = [&](Collective kind) {
      barrier();
      if (group.rank() == 0) {
        const std::lock_guard lock(mutex);
        counts.clear();
      }
      barrier();
      finish(group, *group.start(call_of(group, kind, three_ranks(), memory->bytes()), nullptr));
      barrier();
    };
    const auto count_of = [&](const char* function) {
      const std::lock_guard lock(mutex);
      return counts[function];
    };
    make(Collective::reduce_to_owners);
    if (group.rank() == 0) {
      // On staged, the host reduces: each rank copies its 3 ranges in and what it owns out.
      EXPECT_EQ(count_of("reduce"), GetParam() == TransportKind::staged ? 0 : 3);
      EXPECT_EQ(count_of("copy"), GetParam() == TransportKind::staged ? 9 + 3 : 0);
      EXPECT_EQ(count_of("send"), GetParam() == TransportKind::nccl ? 6 : 0);
      EXPECT_EQ(count_of("receive"), count_of("send"));
      EXPECT_EQ(count_of("all_reduce"), 0);
    }
    make(Collective::gather_from_owners);
    if (group.rank() == 0) {
      EXPECT_EQ(count_of("reduce"), 0);
      const std::map<TransportKind, int> copies{
          {TransportKind::ipc, 6}, {TransportKind::staged, 3 + 6}, {TransportKind::nccl, 0}};
      EXPECT_EQ(count_of("copy"), copies.at(GetParam()));
      EXPECT_EQ(count_of("send"), GetParam() == TransportKind::nccl ? 6 : 0);
      EXPECT_EQ(count_of("receive"), count_of("send"));
      EXPECT_EQ(count_of("all_reduce"), 0);
    }
  });
}

TEST_P(DeviceOwners, AFailureOfEveryFunctionReachesAllRanks) {
  const std::vector<std::string> functions{"record", "make_wait", "query_event", "copy",
                                           "reduce", "send",      "receive",     "start_group",
                                           "query",  "end_group", "word_actions"};
  for (const auto& function : functions) {
    for (int skipped = 0; skipped < 4; ++skipped) {
      std::atomic<bool> armed = false;
      std::atomic<int> calls = 0;
      std::atomic<int> errors = 0;
      std::atomic<int> finished = 0;
      const auto fail_once = [&](std::string_view name) {
        if (!armed || name != function || calls.fetch_add(1) != skipped) return DeviceStatus();
        return DeviceStatus::failed("scripted failure");
      };
      run_ranks(3, fail_once, [&](Group& group) {
        try {
          const auto memory = allocate_on_device(group, 200);
          const auto barrier = [&] {
            finish(group, *group.start({.kind = Collective::barrier}, nullptr));
          };
          std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{1});
          barrier();
          armed = true;
          for (const auto kind : {Collective::reduce_to_owners, Collective::gather_from_owners}) {
            finish(group,
                   *group.start(call_of(group, kind, three_ranks(), memory->bytes()), nullptr));
          }
          EXPECT_EQ(std::count(memory->bytes().begin(), memory->bytes().end(), std::byte{3}), 200)
              << function << ", call " << skipped;
          ++finished;
          barrier();  // a rank that has failed does not enter it
        } catch (const Error& error) {
          ++errors;
          const std::string text = error.what();
          EXPECT_TRUE(text.find("scripted failure") != std::string::npos ||
                      text.find("has left group") != std::string::npos)
              << function << ", call " << skipped << ": " << text;
        }
      });
      // What is seen when all ranks have their results may be reported by some of them only.
      EXPECT_TRUE(errors == 3 || finished == 3)
          << function << ", call " << skipped << ": " << errors << " of 3 ranks";
    }
  }
}

}  // namespace
}  // namespace lockstep
