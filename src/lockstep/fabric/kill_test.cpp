// A rank is killed at a random point: every survivor names it within a second and can create a new
// group. Hundreds of points if LOCKSTEP_SOAK_SEED is set.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/fabric/test_kill_record_internal.h"

namespace lockstep {
namespace {

using testing::Rank;

constexpr double kDetectionLimit = 1.0;  // seconds; usually 0.06

// An endless program of calls, the same on all ranks.
void work_forever(Group& group, RandomStream random) {
  const CallMemory memory(group, 1U << 20);
  for (std::uint64_t number = 0;; ++number) {
    const auto choice = random.below(16);
    if (choice == 0) {
      (void)allocate_on_device(group, 10'000);
      continue;
    }
    if (choice == 1) {
      const auto half = group.split(group.rank() % 2, 0);
      run(*half, {.kind = Collective::barrier});
      continue;
    }
    const auto kind = kDataCollectives[random.below(kDataCollectives.size())];
    const auto count = random.below(3) == 0 ? 9 : random.below(2) == 0 ? 2000 : 9000;
    const Call call{.kind = kind, .dtype = DType::float32, .count = count, .name = "work"};
    const auto where = kMemoryKinds[random.below(kMemoryKinds.size())];
    CheckedCall checked(group, call, Form::apart, memory.span(where), number);
    if (choice < 5) {
      while (!group.done(checked.operation())) std::this_thread::yield();
    }
    checked.wait();
  }
}

std::size_t count_entries(const std::string& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

std::size_t count_registered_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:lockstep memory") != std::string::npos) ++count;
  }
  return count;
}

void survive(TransportKind kind, int rank, int victim, const World& world, RandomStream random) {
  auto group = make_test_group(kind, world, {.one_shot_bytes = 4096});
  if (rank == victim) {
    // 1 to 51 ms after the start, in any operation.
    RandomStream delay = random;
    const std::chrono::microseconds after(1000 + delay.below(50'000));
    std::jthread([after] {
      std::this_thread::sleep_for(after);
      KillRecord::write_and_die();
    }).detach();
  }
  try {
    work_forever(*group, random);
  } catch (const PeerError& error) {
    const auto record = KillRecord::read();
    const std::string text = error.what();
    record.print_detection(text);
    EXPECT_EQ(error.rank(), victim) << text;
    EXPECT_NE(text.find("rank " + std::to_string(victim)), std::string::npos) << text;
    EXPECT_NE(text.find("pid " + std::to_string(record.process)), std::string::npos) << text;
    EXPECT_NE(text.find("call "), std::string::npos) << text;
    // The group stays unusable.
    EXPECT_THROW(run(*group, {.kind = Collective::barrier}), PeerError);
  }
}

// The survivors form a smaller world.
void continue_without(TransportKind kind, int rank, int size, int victim, int number) {
  const int new_rank = rank < victim ? rank : rank - 1;
  const auto world = world_of_processes(new_rank, size - 1, number);
  const auto group = make_test_group(kind, world, {.one_shot_bytes = 4096});
  const CallMemory memory(*group, 1U << 20);
  for (const auto collective : kDataCollectives) {
    CheckedCall(*group, {.kind = collective, .dtype = DType::float32, .count = 5000}, Form::apart,
                memory.span(MemoryKind::registered), 3)
        .wait();
  }
}

// Returns the seconds until the last survivor detected the kill.
double kill_one_of(TransportKind kind, int size, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  set_suite_device(kind, seed);
  RandomStream random({seed, random_purpose("kill")}, 0, 0);
  const int victim = static_cast<int>(random.below(static_cast<std::uint64_t>(size)));
  const auto outcomes =
      testing::run_ranks_as_processes(size,
                                      [&](Rank& self) {
                                        const auto descriptors = count_entries("/proc/self/fd");
                                        {
                                          const auto world = world_of_processes(self.rank(), size);
                                          survive(kind, self.rank(), victim, world, random);
                                        }
                                        if (size > 2)
                                          continue_without(kind, self.rank(), size, victim, 1);
                                        SuiteDevice::set(std::nullopt);
                                        EXPECT_EQ(count_registered_mappings(), 0U);
                                        EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
                                      },
                                      {.expect = testing::Expect::anything});
  KillRecord::remove();
  double longest = 0;
  for (int rank = 0; rank < size; ++rank) {
    const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
    if (rank == victim) {
      EXPECT_EQ(outcome.signal, SIGKILL) << outcome.output;
    } else {
      EXPECT_TRUE(outcome.succeeded()) << "rank " << rank << ":\n" << outcome.output;
      longest = std::max(longest, KillRecord::longest_detection(outcome.output));
    }
  }
  return longest;
}

// The shortest time of several kills. On a busy machine a survivor may not run for a second; a
// transport that detects a kill by a timer is late every time.
double fastest_kill_of(TransportKind kind, int size, std::uint64_t seed) {
  double fastest = kill_one_of(kind, size, seed);
  for (int more = 0; more < 9 && fastest >= kDetectionLimit && !::testing::Test::HasFailure();
       ++more)
    fastest = std::min(fastest, kill_one_of(kind, size, seed));
  return fastest;
}

class Kill : public TransportTest {};
INSTANTIATE_TEST_SUITE_P(Transports, Kill, kTransports);
INSTANTIATE_TEST_SUITE_P(Devices, Kill, kDeviceTransports);

TEST_P(Kill, SurvivorsNameAKilledRankWithinASecondAndContinueWithoutIt) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) : 1;
  const std::uint64_t count = soak ? 200 : 5;
  double longest = 0;
  for (std::uint64_t i = 0; i < count && !HasFailure(); ++i) {
    longest =
        std::max(longest, fastest_kill_of(GetParam(), 2 + static_cast<int>(i % 4), first + i));
  }
  ::printf("%d kills; the last survivor detected them after at most %.3f s\n",
           static_cast<int>(count), longest);
  EXPECT_LT(longest, kDetectionLimit);
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().string().find("lockstep"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace lockstep
