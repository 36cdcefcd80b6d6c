// A rank is killed in every phase of calls over ipc, staged and nccl: before each function of the
// device and of NCCL that it calls, and while its device executes its work. The others name it
// within a second, also if their host is inside synchronize() of the driver, and the survivors form
// a new group on the same devices. Ranks are processes with doubles of their own and the watcher of
// the product. More phases if LOCKSTEP_SOAK_SEED is set.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/fabric/test_kill_record_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

constexpr double kDetectionLimit = 1.0;  // seconds; usually 0.02
constexpr int kVictim = 1;
constexpr int kSize = 5;   // processes of a run
constexpr int kKills = 3;  // of a run: the survivors of each form the next group
constexpr int kRounds = 4;
constexpr auto* kTask = "a task of the device";

// Where the victim dies.
struct Phase {
  std::string function = {};  // before this function, ...
  int skipped = 0;            // ... after this number of its calls
};

// The functions that a group uses from its first call on.
std::vector<std::string> functions_of(TransportKind kind) {
  std::vector<std::string> functions{
      "allocate", "allocate_host", "copy",        "count_devices", "current_device",
      "describe", "make_event",    "make_stream", "make_wait",     "query_event",
      "record",   "set_device",    "set_zero",    "synchronize"};
  const auto add = [&](const std::vector<std::string>& more) {
    functions.insert(functions.end(), more.begin(), more.end());
  };
  if (kind == TransportKind::ipc) {
    add({"close_memory", "export_memory", "open_memory", "reduce", "register_host", "release",
         "word_actions"});
  }
  if (kind == TransportKind::staged) add({"register_host", "release"});
  if (kind == TransportKind::nccl) {
    add({"reduce", "release", "version", "connect", "query", "start_group", "end_group", "send",
         "receive", "all_gather", "all_to_all", "broadcast"});
  }
  return functions;
}

// Used when a group ends: the others do not wait for its rank any more.
const std::set<std::string> kLast{"destroy_event",   "destroy_stream", "release_host",
                                  "unregister_host", "query_stream",   "finalize",
                                  "destroy"};
// Called by rank 0, which is not the victim here (nccl_kill_test.cpp).
constexpr auto* kOfRankZero = "make_id";

// Calls `fault` before each function of the device, and of NCCL if the backend is nccl.
void set_fault(TransportKind kind, const DeviceDouble::Fault& fault) {
  SuiteDevice::get_double().set_fault(fault);
  if (kind == TransportKind::nccl) SuiteDevice::nccl()->set_fault(fault);
}

std::vector<Phase> phases_of(TransportKind kind) {
  const bool soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED").has_value();
  const int num_skipped = soak ? 8 : 1;
  std::vector<Phase> phases;
  for (const auto& function : functions_of(kind)) {
    for (int i = 0; i < num_skipped; ++i) {
      const int usual = static_cast<int>(phases.size() % 3);
      phases.push_back({function, soak ? i : usual});
    }
  }
  for (const int skipped : {0, 2, 5}) phases.push_back({kTask, skipped});
  return phases;
}

// With `in_driver`, the host waits in a function of the driver that knows nothing of the group:
// only the watcher can end this wait.
void finish(Group& group, Operation& operation, bool in_driver) {
  if (!in_driver) return finish(group, operation);
  auto* const stream = SuiteDevice::stream_of(group);
  group.make_wait(operation, stream);
  EXPECT_TRUE(SuiteDevice::get()->synchronize(stream).ok());
}

void exchange(Group& group, bool in_driver) {
  const auto out = std::make_shared<std::vector<std::byte>>(100);
  const auto in = std::make_shared<std::vector<std::byte>>(100);
  auto message = on_device(group, Message{.count = 100});
  message.peer = (group.rank() + 1) % group.size();
  const auto sent = group.send(message, *out, out);
  message.peer = (group.rank() + group.size() - 1) % group.size();
  const auto received = group.receive(message, *in, in);
  finish(group, *sent, in_driver);
  finish(group, *received, in_driver);
}

// Several ranges per rank.
Owners owners_of(int size) {
  std::vector<OwnedPiece> pieces;
  for (int i = 0; i < 10; ++i) pieces.push_back({i % size, 500});
  return {size, pieces};
}

void call(Group& group, Collective kind, std::span<std::byte> span,
          const std::shared_ptr<const void>& memory, bool in_driver) {
  const auto owners = owners_of(group.size());
  const bool in_place = kind == Collective::all_reduce || has_owners(kind);
  Call call{.kind = kind,
            .count = in_place ? owners.count() : owners.count() / group.size(),
            .name = "work",
            .owners = has_owners(kind) ? &owners : nullptr};
  call.input = span.first(input_bytes(call, group.rank(), group.size()));
  const auto output = output_bytes(call, group.rank(), group.size());
  call.output = in_place ? span.first(output) : span.last(output);
  std::fill(span.begin(), span.end(), std::byte{1});
  finish(group, *group.start(on_device(group, call), memory), in_driver);
  if (in_driver || kind != Collective::all_reduce) return;
  EXPECT_EQ(
      std::count(call.output.begin(), call.output.end(), static_cast<std::byte>(group.size())),
      owners.count());
}

void make_round(Group& group, bool in_driver) {
  const auto bytes = 2 * static_cast<std::size_t>(owners_of(group.size()).count());
  exchange(group, in_driver);
  const auto registered = allocate_on_device(group, bytes);
  const auto ordinary = std::make_shared<SuiteMemory>(bytes);
  for (const auto kind : kDataCollectives) {
    call(group, kind, registered->bytes(), registered, in_driver);
    call(group, kind, ordinary->bytes(), ordinary, in_driver);
  }
}

// From now on, this rank dies in the phase, as kill `number` of the run.
void arm(TransportKind kind, const Phase& phase, int number) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto die = [=] {
    if (calls->fetch_add(1) == phase.skipped) KillRecord::write_and_die(number);
  };
  if (phase.function == kTask) return SuiteDevice::get_double().set_before_task(die);
  const auto die_before = [=](std::string_view function) {
    if (function == phase.function) die();
    return DeviceStatus();
  };
  set_fault(kind, die_before);
}

// Until the victim is killed.
void work(TransportKind kind, const World& world, const Phase& phase, int number) {
  const auto group = make_test_group(kind, world, {.timeout = std::chrono::seconds(30)});
  const bool is_victim = group->rank() == kVictim;
  if (is_victim) arm(kind, phase, number);
  try {
    for (int round = 0; round < kRounds; ++round) {
      make_round(*group, /*in_driver=*/group->rank() == 0);
    }
    if (is_victim) KillRecord::write_and_die(number);  // the function has been called less often
    for (;;) run(*group, {.kind = Collective::barrier});
  } catch (const PeerError& error) {
    const std::string text = error.what();
    KillRecord::read(number).print_detection(text);
    EXPECT_EQ(error.rank(), kVictim) << text;
    const auto process = std::to_string(KillRecord::read(number).process);
    EXPECT_NE(text.find("rank 1 (pid " + process), std::string::npos) << text;
    EXPECT_THROW(run(*group, {.kind = Collective::barrier}), PeerError);
  }
}

void continue_together(TransportKind kind, int rank, int size) {
  const auto group = make_test_group(kind, world_of_processes(rank, size, 100), {});
  const CallMemory memory(*group, 1U << 20);
  for (const auto collective : kDataCollectives) {
    for (const auto where : kMemoryKinds) {
      const Call call{.kind = collective, .dtype = DType::float32, .count = 5000};
      CheckedCall(*group, call, Form::apart, memory.span(where), 3).wait();
    }
  }
}

// Returns the longest time in seconds until a survivor named a victim.
double kill_in(TransportKind kind, std::span<const Phase> phases) {
  const auto outcomes = testing::run_ranks_as_processes(
      kSize,
      [&](testing::Rank& self) {
        set_suite_device(kind);
        int rank = self.rank();
        int size = kSize;
        int number = 0;
        for (const auto& phase : phases) {
          self.note(phase.function);
          work(kind, world_of_processes(rank, size, number), phase, number);
          ++number;
          --size;
          if (rank > kVictim) --rank;
        }
        continue_together(kind, rank, size);
      },
      {.expect = testing::Expect::anything});
  double longest = 0;
  std::size_t killed = 0;
  for (std::size_t number = 0; number < phases.size(); ++number) {
    KillRecord::remove(static_cast<int>(number));
  }
  for (const auto& outcome : outcomes) {
    killed += outcome.signal == SIGKILL ? 1 : 0;
    EXPECT_TRUE(outcome.signal == SIGKILL || outcome.succeeded()) << outcome.output;
    longest = std::max(longest, KillRecord::longest_detection(outcome.output));
  }
  EXPECT_EQ(killed, phases.size());
  return longest;
}

class KillPhases : public ::testing::TestWithParam<TransportKind> {
 protected:
  void TearDown() override { SuiteDevice::set(std::nullopt); }
};
INSTANTIATE_TEST_SUITE_P(Transports, KillPhases, kDeviceTransports);

// On a busy machine a survivor may not run for a second: the shortest time of several runs counts.
TEST_P(KillPhases, TheOthersNameTheRankWithinASecondAndContinueOnTheSameDevice) {
  const auto phases = phases_of(GetParam());
  for (std::size_t begin = 0; begin < phases.size() && !HasFailure(); begin += kKills) {
    const auto some =
        std::span(phases).subspan(begin, std::min<std::size_t>(kKills, phases.size() - begin));
    std::string names;
    for (const auto& phase : some) {
      names += phase.function + " " + std::to_string(phase.skipped) + ", ";
    }
    SCOPED_TRACE(names);
    double fastest = kill_in(GetParam(), some);
    for (int more = 0; more < 9 && fastest >= kDetectionLimit && !HasFailure(); ++more) {
      fastest = std::min(fastest, kill_in(GetParam(), some));
    }
    EXPECT_LT(fastest, kDetectionLimit);
  }
}

TEST_P(KillPhases, EveryFunctionThatCallsUseIsAPhase) {
  std::mutex mutex;
  std::set<std::string> used;
  const auto note = [&](std::string_view function) {
    const std::lock_guard lock(mutex);
    used.emplace(function);
    return DeviceStatus();
  };
  set_suite_device(GetParam());
  set_fault(GetParam(), note);
  const auto memory = std::make_shared<ThreadMemory>();
  testing::run_ranks_as_threads(2, [&](testing::Rank& self) {
    const auto group = thread_group(memory, self.rank(), 2, {}, {}, &SuiteDevice::connect);
    for (int round = 0; round < 3; ++round) make_round(*group, /*in_driver=*/false);
  });
  const auto functions = functions_of(GetParam());
  for (const auto& function : functions) {
    const bool is_between_processes = function == "open_memory" || function == "close_memory";
    EXPECT_TRUE(used.contains(function) || is_between_processes) << function;
  }
  for (const auto& function : used) {
    EXPECT_TRUE(kLast.contains(function) || function == kOfRankZero ||
                std::find(functions.begin(), functions.end(), function) != functions.end())
        << function;
  }
}

}  // namespace
}  // namespace lockstep
