// The state after a failure: operations, memory, the flight recorder, and a rank that leaves during
// a call.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/test_stay_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;

Call sum_of(std::span<std::byte> span) {
  return {.kind = Collective::all_reduce,
          .count = static_cast<std::int64_t>(span.size()),
          .name = "sum",
          .input = span,
          .output = span};
}

// Each of two ranks owns one half of 100,000 elements.
const Owners& halves() {
  static const Owners of_100_000(2, std::vector<OwnedPiece>{{0, 50'000}, {1, 50'000}});
  return of_100_000;
}

Call call_on(Collective kind, std::span<std::byte> span) {
  auto call = sum_of(span);
  call.kind = kind;
  if (has_owners(kind)) call.owners = &halves();
  return call;
}
constexpr std::array kInterrupted{Collective::all_reduce, Collective::reduce_to_owners,
                                  Collective::gather_from_owners};

bool is_full_of(std::span<const std::byte> span, std::byte value) {
  return std::count(span.begin(), span.end(), value) == static_cast<std::ptrdiff_t>(span.size());
}

GroupSetting two_apart(TransportKind kind) {
  GroupSetting setting;
  setting.transport = kind;
  setting.ranks = Ranks::apart;
  setting.size = 2;
  return setting;
}

class Failure : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, Failure, kTransports);
INSTANTIATE_TEST_SUITE_P(Devices, Failure, kDeviceTransports);

TEST_P(Failure, CompletedOperationsStayDoneAndPendingOnesThrowTheFirstCause) {
  run_group(two_apart(GetParam()), [](Group& group) {
    std::byte value{1};
    const auto done = group.start(on_device(group, sum_of(std::span(&value, 1))), nullptr);
    finish(group, *done);
    std::byte byte{};
    const Message message{.peer = 1 - group.rank(), .count = 1};
    const auto pending = group.receive(on_device(group, message), std::span(&byte, 1), nullptr);
    const auto name = group.rank() == 0 ? "this" : "that";
    EXPECT_THROW(run(group, {.kind = Collective::barrier, .name = name}), PeerError);
    EXPECT_NO_THROW(group.wait(*done));
    // After a failure, no rank takes what is on a device for a result.
    if (!is_on_device(GetParam())) {
      EXPECT_TRUE(group.done(*done));
    } else {
      EXPECT_THROW((void)group.done(*done), PeerError);
    }
    EXPECT_THROW((void)group.done(*pending), PeerError);
    EXPECT_THROW(group.advance(), PeerError);
    EXPECT_THROW((void)allocate_on_device(group, 1), PeerError);
    EXPECT_THROW((void)group.split(0, 0), PeerError);
    EXPECT_THROW((void)group.send({.peer = 0}, {}, nullptr), PeerError);
    try {
      finish(group, *pending);
      ADD_FAILURE() << "no error";
    } catch (const PeerError& error) {
      EXPECT_NE(std::string(error.what()).find("\"this\""), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("\"that\""), std::string::npos) << error.what();
    }
  });
}

// A call can throw in start(), if the others have already entered theirs.
TEST_P(Failure, ADifferenceCanBeReportedByStart) {
  run_group(two_apart(GetParam()), [](Group& group) {
    const auto act = [&] {
      if (group.rank() == 1) std::this_thread::sleep_for(50ms);
      run(group, {.kind = Collective::barrier, .name = group.rank() == 0 ? "a" : "b"});
    };
    EXPECT_THROW(act(), PeerError);
  });
}

// On a device, start() may report a rank that has left already.
class FailureOnHost : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, FailureOnHost, kTransports);

TEST_P(FailureOnHost, OperationsAndMemoryOutliveTheirGroup) {
  for (const auto kind : kInterrupted) {
    const auto point = MeetingPoint::of_threads();
    const auto server = point.serve();
    testing::run_ranks_as_threads(2, [&](Rank& self) {
      std::shared_ptr<Operation> pending;
      std::shared_ptr<RegisteredMemory> memory;
      {
        const auto group =
            make_test_group(GetParam(), point.join(self.rank(), 2), {.one_shot_bytes = 256});
        memory = group->allocate(100'000);
        pending = group->start(call_on(kind, memory->bytes()), nullptr);
      }
      std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{4});
      EXPECT_TRUE(is_full_of(memory->bytes(), std::byte{4}));
      EXPECT_EQ(pending->flags().sum, 0);
    });
  }
}

// The other rank enters the call after this rank has left it: it must not write to this rank's
// memory.
TEST_P(Failure, ARankThatLeavesDuringACallKeepsItsMemoryPrivate) {
  for (const auto kind : kInterrupted) {
    set_suite_device(GetParam());
    const auto point = MeetingPoint::of_threads();
    const auto server = point.serve();
    testing::run_ranks_as_threads(2, [&](Rank& self) {
      const auto world = point.join(self.rank(), 2);
      auto group = make_test_group(GetParam(), world, {.one_shot_bytes = 256});
      const auto memory = allocate_on_device(*group, 100'000);
      if (self.rank() == 0) {
        (void)group->start(on_device(*group, call_on(kind, memory->bytes())), nullptr);
        group.reset();
        std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{0x5A});
      }
      self.barrier(soon());
      if (self.rank() == 1) {
        std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{1});
        EXPECT_THROW(run(*group, call_on(kind, memory->bytes())), PeerError);
      }
      self.barrier(soon());
      if (self.rank() == 0) {
        EXPECT_TRUE(is_full_of(memory->bytes(), std::byte{0x5A}));
      }
    });
  }
}

TEST_P(Failure, TheFlightRecorderIsWrittenToTheRunFolder) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("lockstep-flight-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  set_suite_device(GetParam());
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(2, [&](Rank& self) {
    const auto world = point.join(self.rank(), 2, folder.string());
    const auto group = make_test_group(GetParam(), world, {.one_shot_bytes = 256});
    const auto name = self.rank() == 0 ? "good" : "bad";
    EXPECT_THROW(run(*group, {.kind = Collective::barrier, .name = name}), PeerError);
  });
  for (const std::string rank : {"0", "1"}) {
    std::ifstream file(folder / ("flight-world-rank" + rank + ".json"));
    const auto json = nlohmann::json::parse(file);
    EXPECT_NE(json["cause"].get<std::string>().find("\"bad\""), std::string::npos) << json;
    EXPECT_EQ(json["calls"].back()["state"], "entered");
    const bool is_shm = GetParam() == TransportKind::shm || is_on_device(GetParam());
    const std::string settings = is_shm                               ? "inline_bytes 16384"
                                 : GetParam() == TransportKind::plain ? "plain"
                                 : GetParam() == TransportKind::hosts
                                     ? "hierarchical, inline_bytes 2048"
                                     : "tcp, inline_bytes 16384";
    EXPECT_EQ(json["calls"].front()["call"], "barrier(\"group made, " + settings + "\")");
  }
  std::filesystem::remove_all(folder);
}

TEST_P(Failure, AnInvalidAllocationIsRefusedAndTheGroupStaysUsable) {
  run_group(two_apart(GetParam()), [](Group& group) {
    EXPECT_THROW((void)allocate_on_device(group, std::size_t{1} << 62), UsageError);
    run(group, {.kind = Collective::barrier});
  });
}

// Rank 0 allocates the memory, and its limit of file size is too small.
TEST(FailureInSharedMemory, AFailedAllocationThrowsOnEveryRank) {
  (void)testing::run_ranks_as_processes(2, [](Rank& self) {
    const auto group = make_test_group(TransportKind::shm, world_of_processes(self.rank(), 2), {});
    if (self.rank() == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit small{1U << 20, 1U << 20};
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    try {
      (void)group->allocate(64U << 20);
      ADD_FAILURE() << "rank " << self.rank() << " has memory";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 0) << error.what();
    }
    self.barrier(self.deadline());
  });
}

std::size_t own_anonymous_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * 1024;
  }
  return 0;
}

// The memory of a rank stays mapped when its peer is dead: a copy would take seconds for gigabytes
// and double the memory use of the host.
TEST(FailureInSharedMemory, ALostRankCausesNoCopyOfTheMemory) {
  constexpr std::size_t kBytes = 256U << 20;
  const auto outcomes = testing::run_ranks_as_processes(
      3,
      [](Rank& self) {
        const auto group =
            make_test_group(TransportKind::shm, world_of_processes(self.rank(), 3), {});
        const auto memory = group->allocate(kBytes);
        std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{1});
        run(*group, {.kind = Collective::barrier});
        if (self.rank() == 2) ::raise(SIGKILL);
        const auto before = own_anonymous_bytes();
        EXPECT_THROW(run(*group, sum_of(memory->bytes())), PeerError);
        EXPECT_LT(own_anonymous_bytes(), before + kBytes / 20);
        EXPECT_EQ(memory->bytes().front(), std::byte{1});
      },
      {.expect = testing::Expect::anything});
  for (const int rank : {0, 1}) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(outcome.succeeded()) << outcome.output;
  }
}

TEST_P(Failure, ADeadlockOfTwoGroupsIsReported) {
  auto setting = two_apart(GetParam());
  setting.options.timeout = 2s;
  std::atomic<int> told = 0;
  run_group(setting, [&](Group& group) {
    const auto other = group.split(0, 0);
    try {
      run(group.rank() == 0 ? group : *other, {.kind = Collective::barrier, .name = "one"});
      ADD_FAILURE() << "no error";
    } catch (const PeerError& error) {
      if (std::string(error.what()).find("it waits for this rank in call") != std::string::npos) {
        ++told;
      }
    }
  });
  EXPECT_GE(told, 1) << "the rank that times out later may report that the other has left";
}

// The deadline is 100 ms; the timeout of the group is 30 s.
TEST_P(Failure, AWaitEndsAtItsOwnDeadline) {
  std::atomic<bool> ended = false;
  run_group(two_apart(GetParam()), [&](Group& group) {
    if (group.rank() == 1) ended.wait(false);
    const auto begin = std::chrono::steady_clock::now();
    const auto act = [&] {
      const auto operation = group.start({.kind = Collective::barrier}, nullptr);
      group.wait(*operation, Deadline::after(100ms));
    };
    EXPECT_THROW(act(), PeerError);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    ended = true;
    ended.notify_all();
  });
}

// Rank 1 waits for a call late: another rank has completed it and then failed in a later call.
TEST(FailureInSharedMemory, ACallThatTheFailedRankHasCompletedSucceeds) {
  auto setting = two_apart(TransportKind::shm);
  setting.size = 3;
  std::atomic<bool> failed = false;
  run_group(setting, [&](Group& group) {
    const auto last = group.start({.kind = Collective::barrier, .name = "last"}, nullptr);
    if (group.rank() == 1) failed.wait(false);
    EXPECT_NO_THROW(group.wait(*last));
    if (group.rank() == 0) return;
    EXPECT_THROW(run(group, {.kind = Collective::barrier, .name = "extra"}), PeerError);
    failed = true;
    failed.notify_all();
  });
}

// Rank 0 waits for rank 1 of its own host: it is not the late one, although its header waits too.
TEST(FailureOfHosts, ARankThatDoesNotEnterIsNamedByTheOtherHosts) {
  for (const int late : {1, 2}) {
    std::atomic<int> told = 0;
    auto setting = two_apart(TransportKind::hosts);
    setting.size = 4;
    setting.options.timeout = 3s;
    setting.options.stall_report = 1s;
    run_group(setting, [&](Group& group) {
      run(group, {.kind = Collective::barrier, .name = "last"});
      if (group.rank() == late) return told.wait(0);
      try {
        run(group, {.kind = Collective::barrier, .name = "missing"});
        ADD_FAILURE() << "no error";
      } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), late) << error.what();
        EXPECT_NE(std::string(error.what()).find("\"last\""), std::string::npos) << error.what();
      }
      ++told;
      told.notify_all();
    });
  }
}

TEST_P(Failure, OtherGroupsStayUsable) {
  run_group(two_apart(GetParam()), [](Group& group) {
    const auto other = group.split(0, 0);
    const auto name = group.rank() == 0 ? "a" : "b";
    EXPECT_THROW(run(*other, {.kind = Collective::barrier, .name = name}), PeerError);
    run(group, {.kind = Collective::barrier});
    run(*group.split(0, 0), {.kind = Collective::barrier});
  });
}

// The ranks create groups one after the other, and the victim is killed meanwhile. Usually the
// others detect it within 0.1 s; the timeout of the groups is 600 s.
TEST_P(Failure, ARankKilledWhileGroupsAreCreatedIsNamed) {
  constexpr int kSize = 4;
  for (const int victim : {1, 3}) {  // rank 0 serves the store here
    const auto body = [&](Rank& self) {
      const StayUntilTold stay;
      set_suite_device(GetParam());
      const auto world = world_of_processes(self.rank(), kSize);
      self.note("making");
      auto last = std::chrono::steady_clock::now();
      try {
        for (;;) {
          last = std::chrono::steady_clock::now();
          const auto group = make_test_group(GetParam(), world, {.one_shot_bytes = 256});
          (void)connect_device(*group);
        }
      } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), victim) << error.what();
        EXPECT_LT(std::chrono::steady_clock::now() - last, 10s) << error.what();
      }
      self.note("detected");
      stay.wait();  // rank 0 serves the store, which names the ended rank to the others
    };
    const auto outcomes = testing::run_ranks_as_processes(
        kSize, body, {.expect = testing::Expect::anything, .meanwhile = [&](const auto& ranks) {
                        for (int rank = 0; rank < kSize; ++rank) {
                          ranks.wait_for_note(rank, "making", soon());
                        }
                        std::this_thread::sleep_for(std::chrono::milliseconds(20 * victim));
                        ranks.send_signal(victim, SIGKILL);
                        for (int rank = 0; rank < kSize; ++rank) {
                          if (rank != victim) ranks.wait_for_note(rank, "detected", soon());
                        }
                        for (int rank = 0; rank < kSize; ++rank) {
                          if (rank != victim) ranks.send_signal(rank, StayUntilTold::kSignal);
                        }
                      }});
    for (int rank = 0; rank < kSize; ++rank) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(rank == victim || outcome.succeeded()) << outcome.output;
    }
  }
}

}  // namespace
}  // namespace lockstep
