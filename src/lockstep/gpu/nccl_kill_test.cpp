// A rank of the transport nccl is killed in every phase of a call: the others name it, their
// processes stay alive, and a new group on the same device works. Ranks are processes; each has
// doubles of its own, on which the work of several ranks waits until it is aborted, as with a dead
// rank.
#include <gtest/gtest.h>
#include <signal.h>

#include <ostream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/gpu/watcher.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

constexpr int kSize = 3;
constexpr int kVictim = 1;

struct Phase {
  std::string name;
  std::string dies_in;  // the function of NCCL in which the victim dies
};
void PrintTo(const Phase& phase, std::ostream* out) { *out << phase.name; }

class KillOnDevice : public ::testing::TestWithParam<Phase> {};
INSTANTIATE_TEST_SUITE_P(Phases, KillOnDevice,
                         ::testing::Values(Phase{"connecting", "connect"},
                                           Phase{"enqueuing", "all_gather"},
                                           Phase{"in progress", "end_group"},
                                           Phase{"on the device", "end_group"},
                                           Phase{"sending to owners", "send"},
                                           Phase{"receiving from owners", "receive"}));

Call sum_of(const Group& group, std::span<std::byte> span) {
  return on_device(group, {.kind = Collective::all_reduce,
                           .count = static_cast<std::int64_t>(span.size()),
                           .name = "sum",
                           .input = span,
                           .output = span});
}

// Several ranges per rank.
const Owners& owners() {
  static const Owners pieces(
      kSize, std::vector<OwnedPiece>{{1, 2}, {0, 1}, {2, 3}, {1, 1}, {0, 2}, {2, 1}});
  return pieces;
}

Call call_of(const Group& group, const Phase& phase, std::span<std::byte> span) {
  auto call = sum_of(group, span);
  if (phase.name == "sending to owners") call.kind = Collective::reduce_to_owners;
  if (phase.name == "receiving from owners") call.kind = Collective::gather_from_owners;
  if (has_owners(call.kind)) call.owners = &owners();
  return call;
}

// What a survivor does until it learns of the failure.
void call_until_it_fails(Group& group, const Phase& phase) {
  const SuiteMemory memory(10);
  if (phase.name != "on the device") {
    run(group, call_of(group, phase, memory.bytes()));
    return;
  }
  // The host waits in a function of the driver that knows nothing of the group: only the watcher
  // can end this wait.
  auto* const stream = SuiteDevice::stream_of(group);
  const auto operation = group.start(sum_of(group, memory.bytes()), nullptr);
  try {
    group.make_wait(*operation, stream);
  } catch (const PeerError&) {
    // The failure was noted before the wait was enqueued.
  }
  EXPECT_TRUE(SuiteDevice::get()->synchronize(stream).ok());
  (void)group.start(sum_of(group, memory.bytes()), nullptr);
}

TEST_P(KillOnDevice, TheOthersNameTheRankAndContinueOnTheSameDevice) {
  const auto& phase = GetParam();
  const auto outcomes = testing::run_ranks_as_processes(
      kSize,
      [&](testing::Rank& self) {
        SuiteDevice::set(SuiteDevice::Setting{.backend = BackendKind::nccl,
                                              .device = {.num_devices = kSize},
                                              .watcher = &watcher_of_process});
        auto& nccl = *SuiteDevice::nccl();
        if (phase.name != "connecting") nccl.set_apart();
        if (phase.name == "in progress") nccl.stall();
        nccl.set_fault([&](std::string_view function) {
          if (self.rank() == kVictim && function == phase.dies_in) ::raise(SIGKILL);
          return DeviceStatus();
        });
        {
          const auto world = world_of_processes(self.rank(), kSize);
          const auto group = make_test_group(TransportKind::nccl, world, {});
          try {
            call_until_it_fails(*group, phase);
            ADD_FAILURE() << "no error";
          } catch (const PeerError& error) {
            EXPECT_EQ(error.rank(), kVictim) << error.what();
            const auto words = "rank " + std::to_string(kVictim) + " (pid ";
            EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
          }
        }
        EXPECT_EQ(nccl.num_open(), 0);
        EXPECT_EQ(nccl.violations(), std::vector<std::string>());
        nccl.set_fault(nullptr);
        nccl.clear_script();
        const auto alone =
            make_test_group(TransportKind::nccl, world_of_processes(0, 1, 100 + self.rank()), {});
        const SuiteMemory memory(10);
        run(*alone, sum_of(*alone, memory.bytes()));
      },
      {.expect = testing::Expect::anything});
  for (int rank = 0; rank < kSize; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (rank == kVictim) {
      EXPECT_EQ(outcome.signal, SIGKILL) << outcome.output;
    } else {
      EXPECT_TRUE(outcome.succeeded()) << "rank " << rank << ":\n" << outcome.output;
    }
  }
}

}  // namespace
}  // namespace lockstep
