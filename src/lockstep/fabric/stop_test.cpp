// Stopped ranks (SIGSTOP) are reported, then named at the timeout. A rank that is resumed in time
// continues without an error. A rank that is resumed too late writes to no other rank's memory and
// gets an error.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/test_stay_internal.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;

// Large enough that a call takes milliseconds, so that a stop falls into it. With sockets it must
// fit into their buffers, because the report of a failure is queued behind the data.
std::size_t large_bytes(TransportKind kind) {
  return kind == TransportKind::shm ? 16U << 20 : is_on_device(kind) ? 1U << 20 : 64U << 10;
}

// Sums spans filled with rank + 1 until a call fails; returns the error.
PeerError sum_until_failure(Group& group, RegisteredMemory& memory) {
  const auto span = memory.bytes();
  const int size = group.size();
  const std::byte wanted{static_cast<unsigned char>(size * (size + 1) / 2)};
  try {
    for (;;) {
      const std::byte own{static_cast<unsigned char>(group.rank() + 1)};
      std::fill(span.begin(), span.end(), own);
      run(group, {.kind = Collective::all_reduce,
                  .count = static_cast<std::int64_t>(span.size()),
                  .name = "large",
                  .input = span,
                  .output = span});
      EXPECT_EQ(std::count(span.begin(), span.end(), wanted),
                static_cast<std::ptrdiff_t>(span.size()));
    }
  } catch (const PeerError& error) {
    return error;
  }
}

void expect_words(const std::string& text, std::initializer_list<std::string> all_words) {
  for (const auto& words : all_words) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
  }
}

// `victim` is stopped at a random time and resumed when all others have given up.
void stop_one_of(TransportKind kind, int size, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomStream random({seed, random_purpose("stop")}, 0, 0);
  const int victim = static_cast<int>(random.below(static_cast<std::uint64_t>(size)));
  const std::chrono::microseconds delay(random.below(30'000));
  set_suite_device(kind, seed);
  const auto body = [&](Rank& self) {
    const auto world = world_of_processes(self.rank(), size);
    const auto group = make_test_group(
        kind, world, {.timeout = 1500ms, .stall_report = 300ms, .one_shot_bytes = 4096});
    const auto memory = allocate_on_device(*group, large_bytes(kind));
    self.note("working");
    const auto error = sum_until_failure(*group, *memory);
    if (self.rank() == victim) {
      expect_words(error.what(), {"has given up on this rank", "stopped by a signal"});
      self.barrier(self.deadline());
      return;
    }
    EXPECT_EQ(error.rank(), victim) << error.what();
    expect_words(error.what(),
                 {"rank " + std::to_string(victim) + " (pid ", "stopped by a signal", "call ",
                  "all_reduce(sum, " + std::to_string(large_bytes(kind)) + " × uint8, " +
                      (is_on_device(kind) ? "on CUDA, " : "") + "\"large\")"});
    // From here on the memory is private to this rank, whatever the victim does when it resumes.
    std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{0x5A});
    self.note("given up");
    self.barrier(self.deadline());
    EXPECT_EQ(std::count(memory->bytes().begin(), memory->bytes().end(), std::byte{0x5A}),
              static_cast<std::ptrdiff_t>(large_bytes(kind)));
  };
  const auto outcomes = testing::run_ranks_as_processes(
      size, body, {.expect = testing::Expect::anything, .meanwhile = [&](const auto& ranks) {
                     const auto deadline = Deadline::after(30s);
                     for (int rank = 0; rank < size; ++rank) {
                       ranks.wait_for_note(rank, "working", deadline);
                     }
                     std::this_thread::sleep_for(delay);
                     ranks.send_signal(victim, SIGSTOP);
                     for (int rank = 0; rank < size; ++rank) {
                       if (rank != victim) ranks.wait_for_note(rank, "given up", deadline);
                     }
                     ranks.send_signal(victim, SIGCONT);
                   }});
  std::size_t reports = 0;
  for (int rank = 0; rank < size; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(outcome.succeeded()) << "rank " << rank << ":\n" << outcome.output;
    if (outcome.output.find("warning: waiting for") != std::string::npos) ++reports;
  }
  EXPECT_GE(reports, static_cast<std::size_t>(size) - 1)
      << "a waiting rank reports the stall before it fails";
}

class Stop : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, Stop, kTransports);
// Not over nccl: the device of a double stops with its process, a GPU does not, and NCCL does not
// tell whose device is late.
INSTANTIATE_TEST_SUITE_P(Devices, Stop,
                         ::testing::Values(TransportKind::ipc, TransportKind::staged));

TEST_P(Stop, AStoppedRankIsReportedAndNamedAndWritesNothingWhenItResumes) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) : 1;
  const std::uint64_t count = soak ? 30 : is_on_device(GetParam()) ? 1 : 5;
  for (std::uint64_t i = 0; i < count && !HasFailure(); ++i) {
    stop_one_of(GetParam(), 2 + static_cast<int>(i % 3), first + i);
  }
}

class StopAndResume : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, StopAndResume, kTransports);
INSTANTIATE_TEST_SUITE_P(Devices, StopAndResume, kDeviceTransports);

TEST_P(StopAndResume, RanksThatAreStoppedAndResumedGiveCorrectSums) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t seed = soak ? std::stoull(*soak) : 1;
  const int stops = soak ? 500 : is_on_device(GetParam()) ? 10 : 40;
  constexpr int kSize = 3;
  const auto kind = GetParam();
  set_suite_device(kind, seed);
  const auto body = [&](Rank& self) {
    const auto world = world_of_processes(self.rank(), kSize);
    const auto group = make_test_group(kind, world, {.one_shot_bytes = 4096});
    const CallMemory memory(*group, 1U << 20);
    self.note("working");
    for (std::uint64_t i = 0; i < 40U * static_cast<std::uint64_t>(stops); ++i) {
      const Call call{.kind = kDataCollectives[i % kDataCollectives.size()],
                      .dtype = DType::int32,
                      .count = i % 5 == 0 ? 20'000 : 300};
      CheckedCall(*group, call, Form::apart, memory.span(kMemoryKinds[i % 3]), i).wait();
    }
    self.barrier(self.deadline());
  };
  (void)testing::run_ranks_as_processes(
      kSize, body,
      {.limit = 600s, .meanwhile = [&](const auto& ranks) {
         RandomStream random({seed, random_purpose("stop and go")}, 0, 0);
         try {
           for (int rank = 0; rank < kSize; ++rank) {
             ranks.wait_for_note(rank, "working", Deadline::after(30s));
           }
           for (int i = 0; i < stops; ++i) {
             const int rank = static_cast<int>(random.below(kSize));
             ranks.send_signal(rank, SIGSTOP);
             std::this_thread::sleep_for(std::chrono::microseconds(random.below(20'000)));
             ranks.send_signal(rank, SIGCONT);
             std::this_thread::sleep_for(std::chrono::microseconds(random.below(20'000)));
           }
         } catch (const PeerError&) {
           // A rank has ended: it finished before the last stop.
         }
       }});
}

// Ctrl-Z and fg: no rank takes the time in which it was stopped itself for waiting or for silence.
class StopOfJob : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, StopOfJob, kTransports);

TEST_P(StopOfJob, AJobThatIsStoppedAsAWholeForLongerThanItsTimeoutContinues) {
  constexpr int kSize = 2;
  constexpr std::uint64_t kCalls = 2000;
  const auto kind = GetParam();
  const bool has_heartbeat = kind == TransportKind::tcp || kind == TransportKind::hosts;
  const auto stopped_for = has_heartbeat ? 3500ms : 2000ms;  // which is 3 s
  const auto body = [&](Rank& self) {
    const auto world = world_of_processes(self.rank(), kSize);
    const auto group = make_test_group(kind, world, {.timeout = 1500ms});
    const CallMemory memory(*group, 1U << 20);
    self.note("working");
    for (std::uint64_t i = 0; i < kCalls; ++i) {
      CheckedCall(*group, {.kind = Collective::all_reduce, .dtype = DType::int32, .count = 20'000},
                  Form::apart, memory.span(kMemoryKinds[i % 3]), i)
          .wait();
    }
    self.barrier(self.deadline());
  };
  (void)testing::run_ranks_as_processes(kSize, body, {.meanwhile = [&](const auto& ranks) {
                                          for (int rank = 0; rank < kSize; ++rank) {
                                            ranks.wait_for_note(rank, "working",
                                                                Deadline::after(30s));
                                          }
                                          for (int rank = 0; rank < kSize; ++rank)
                                            ranks.send_signal(rank, SIGSTOP);
                                          std::this_thread::sleep_for(stopped_for);
                                          for (int rank = 0; rank < kSize; ++rank)
                                            ranks.send_signal(rank, SIGCONT);
                                        }});
}

// The host of rank 0 waits in the driver for work of rank 1, so that only the watcher, with the
// deadline of that work, looks at the group. Rank 1 is resumed later than rank 0.
TEST(StopOfDevices, TheDeadlineOfEnqueuedWorkExcludesTheTimeInWhichTheJobWasStopped) {
  set_suite_device(TransportKind::ipc);
  const auto body = [](Rank& self) {
    const StayUntilTold stay;
    const auto world = world_of_processes(self.rank(), 2);
    const auto group = make_test_group(TransportKind::ipc, world, {.timeout = 1500ms});
    std::byte value{1};
    const std::span span(&value, 1);
    const auto call = on_device(
        *group, {.kind = Collective::all_reduce, .count = 1, .input = span, .output = span});
    finish(*group, *group->start(call, nullptr));
    run(*group, {.kind = Collective::barrier});
    if (self.rank() == 1) {
      const auto operation = group->start(call, nullptr);
      self.barrier(self.deadline());
      self.note("entered");
      stay.wait();
      finish(*group, *operation);
    } else {
      self.barrier(self.deadline());
      const auto operation = group->start(call, nullptr);
      EXPECT_TRUE(operation->done) << "the work is not enqueued";
      group->make_wait(*operation, call.stream);
      self.note("enqueued");
      EXPECT_TRUE(SuiteDevice::get()->synchronize(call.stream).ok());
      finish(*group, *operation);
    }
    EXPECT_EQ(value, std::byte{4});
    self.barrier(self.deadline());
  };
  (void)testing::run_ranks_as_processes(2, body, {.meanwhile = [](const auto& ranks) {
                                          ranks.wait_for_note(0, "enqueued", soon());
                                          ranks.wait_for_note(1, "entered", soon());
                                          for (const int rank : {0, 1})
                                            ranks.send_signal(rank, SIGSTOP);
                                          std::this_thread::sleep_for(2000ms);
                                          ranks.send_signal(0, SIGCONT);
                                          std::this_thread::sleep_for(200ms);
                                          ranks.send_signal(1, SIGCONT);
                                          ranks.send_signal(1, StayUntilTold::kSignal);
                                        }});
}

}  // namespace
}  // namespace lockstep
