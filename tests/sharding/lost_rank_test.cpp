// A rank is killed, or stopped until the others have given it up, inside backward() and step() of
// training with shards: the survivors name it within a second, each has the parameters of a
// complete step bit for bit, and nothing leaks. Hundreds of losses if LOCKSTEP_SOAK_SEED is set.
//
// The survivors of a test are the same two processes in all rounds. The rank that is lost is a new
// process in each round: that of rank 1 forks it, and uses no device itself.
//
// With LOCKSTEP_TEST_DEVICE=cuda the parameters are on a GPU, which the ranks share.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/flat/walk.h"
#include "lockstep/testing/processes.h"
#include "test_trap_internal.h"

namespace lockstep {
namespace {

constexpr int kSize = 3;
constexpr int kVictim = 1;
constexpr int kSteps = 7;
constexpr double kDetectionLimit = 1.0;  // seconds; usually 0.06
constexpr double kLr = 0.1;

struct Kind {
  std::string name;
  Shard shard = Shard::optimizer;
  Copies copies = Copies::per_rank;
  Backend backend = Backend::automatic;
};
const std::vector kKinds{
    Kind{"OptimizerPerRank"},
    Kind{"OptimizerPerHost", Shard::optimizer, Copies::per_host},
    Kind{"GradientsPerRank", Shard::gradients},
    Kind{"GradientsPerHost", Shard::gradients, Copies::per_host},
    Kind{"OptimizerOverTcp", Shard::optimizer, Copies::per_rank, Backend::tcp},
    Kind{"GradientsOverTcp", Shard::gradients, Copies::per_rank, Backend::tcp}};

// Those that differ on the device of this test.
std::vector<Kind> kinds_here() {
  if (test_device().is_cpu()) return kKinds;
  std::vector<Kind> kinds;
  for (const auto& kind : kKinds) {
    if (kind.copies == Copies::per_rank && kind.backend == Backend::automatic) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

// Four parts, of which each rank updates a shard (flat/shards.h).
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
    register_module("head", head);
    fill(*this, 1);
  }
  at::Tensor loss(int rank, int step) {
    const auto hidden = torch::tanh(first->forward(batch_of(rank, step, 2, 64)));
    return head->forward(torch::tanh(third->forward(second->forward(hidden)))).square().mean();
  }
  torch::nn::Linear first{64, 6144};
  torch::nn::Linear second{6144, 64};
  torch::nn::Linear third{64, 6144};
  torch::nn::Linear head{6144, 8};
};
TORCH_MODULE(Net);

std::uint64_t digest_of_values(const FlatParameters& flat) {
  std::uint64_t all = 0;
  for (const auto& parameter : flat.parameters()) {
    all = all * 31 + digest_of(parameter.tensor.detach());
  }
  return all;
}

std::size_t count_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
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

// For the records of the rounds. The ranks make it, the process of the test removes it.
struct RecordFolder {
  RecordFolder() = default;
  RecordFolder(const RecordFolder&) = delete;
  RecordFolder& operator=(const RecordFolder&) = delete;
  ~RecordFolder() { std::filesystem::remove_all(path(::getpid())); }

  [[nodiscard]] static std::string path(pid_t test) {
    return std::filesystem::temp_directory_path() / fmt::format("lockstep-lost-{}", test);
  }
};

// One round: where its ranks meet, and what happens.
struct Round {
  Kind kind;
  Loss loss;
  MeetingPoint meeting;
  MeetingPoint second_meeting;  // of a rank that was stopped with those that gave it up
  std::string record;           // a file: when the rank was lost
  std::chrono::milliseconds timeout{20'000};

  [[nodiscard]] ProcessGroup group(const World& world) const {
    return ProcessGroup(world, {.timeout = timeout, .backend = kind.backend});
  }
  [[nodiscard]] DdpOptions options() const {
    return {.bucket_bytes = 100'000, .shard = kind.shard, .copies = kind.copies};
  }
};

World meet_at(const MeetingPoint& meeting, int rank) {
  const auto server = rank == 0 ? meeting.serve() : nullptr;
  auto world = meeting.join(rank, kSize);
  if (server) world.keep(server);
  return world;
}

// The digests after each step of plain Ddp, with all ranks alive.
std::vector<std::uint64_t> undisturbed(const MeetingPoint& meeting, int rank) {
  const auto world = meet_at(meeting, rank);
  const ProcessGroup group(world);
  Net net;
  Ddp ddp(*net, group);
  TrappedSgd optimizer(ddp.flat(), kLr, nullptr);
  std::vector digests{digest_of_values(ddp.flat())};
  for (int step = 0; step < kSteps; ++step) {
    net->loss(rank, step).backward();
    optimizer.step();
    optimizer.zero_grad();
    digests.push_back(digest_of_values(ddp.flat()));
  }
  return digests;
}

// The process that is lost. Returns if it was stopped, and the others have given it up.
void be_lost(const Round& round) {
  const auto world = meet_at(round.meeting, kVictim);
  const auto group = round.group(world);
  (void)gather_values(group, static_cast<std::int64_t>(::getpid()));
  Net net;
  Ddp ddp(*net, group, round.options());
  Trap trap(round.loss, round.record);
  TrappedSgd optimizer(ddp.flat(), kLr, &trap);
  const auto parameters = net->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].register_hook(
        [&, i](const at::Tensor&) { trap.at_gradient_of(i, parameters.size()); });
  }
  try {
    for (int step = 0; step < kSteps; ++step) {
      trap.begin_step(step);
      net->loss(kVictim, step).backward();
      optimizer.step();
      trap.end_step();
      optimizer.zero_grad();
    }
  } catch (const PeerError&) {
    (void)meet_at(round.second_meeting, kVictim);
  }
}

// Returns how the process ended, as waitpid().
int run_in_a_process(const std::function<void()>& body) {
  const auto parent = ::getpid();
  const auto child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(2);
    try {
      body();
    } catch (const std::exception& error) {
      fmt::print(stderr, "the rank that is to be lost: {}\n", error.what());
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

void lose_the_victim(const Round& round) {
  const int status = run_in_a_process([&] { be_lost(round); });
  if (round.loss.signal == SIGKILL) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  } else {
    EXPECT_EQ(status, 0);
  }
}

// What a survivor has seen of the losses of one kind.
struct Seen {
  std::map<Point, double> fastest;  // seconds from the signal to PeerError
  int num_old = 0;                  // rounds that left the values before the step of the loss
  int num_new = 0;                  // or those after it
};

// Trains until the other rank is lost: the survivor has a complete step, and keeps it.
void survive(const Round& round, int rank, const std::vector<std::uint64_t>& expected, Seen& seen) {
  const auto world = meet_at(round.meeting, rank);
  const auto group = round.group(world);
  const auto pids = gather_values(group, static_cast<std::int64_t>(::getpid()));
  Net net;
  Ddp ddp(*net, group, round.options());
  TrappedSgd optimizer(ddp.flat(), kLr, nullptr);
  double took = 0;
  try {
    for (int step = 0; step < kSteps; ++step) {
      net->loss(rank, step).backward();
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_EQ(digest_of_values(ddp.flat()), expected[static_cast<std::size_t>(step) + 1]) << step;
    }
    ADD_FAILURE() << "no PeerError";
  } catch (const PeerError& error) {
    const auto detected = SteadyClock::now().time_since_epoch().count();
    took = static_cast<double>(detected - Trap::time_in(round.record)) / 1e9;
    EXPECT_EQ(error.rank(), kVictim) << error.what();
  }
  const auto found = digest_of_values(ddp.flat());
  const auto in_step = static_cast<std::size_t>(round.loss.in_step);
  const bool is_old = found == expected[in_step];
  const bool is_new = found == expected[in_step + 1];
  EXPECT_TRUE(is_old || is_new) << "a mixture of two steps";
  fmt::print("rank {}: {} values, after {:.3f} s\n", rank, is_new ? "new" : "old", took);
  // No rank has the new values of a rank that is lost before it has computed them.
  const auto point = round.loss.point;
  const bool is_before = point == Point::in_backward || point == Point::in_update;
  EXPECT_TRUE(is_old || !is_before);
  (is_new ? seen.num_new : seen.num_old) += 1;
  if (round.loss.signal == SIGKILL) {
    const auto [entry, is_first] = seen.fastest.try_emplace(point, took);
    entry->second = std::min(entry->second, took);
    return;
  }
  if (rank == 0) ::kill(static_cast<pid_t>(pids[kVictim]), SIGCONT);
  (void)meet_at(round.second_meeting, rank);  // the rank that was stopped has left its step
  EXPECT_EQ(digest_of_values(ddp.flat()), found) << "the rank that woke up has written";
}

void play(int rank, const MeetingPoint& first_meeting, const std::vector<Round>& rounds) {
  if (rank == kVictim) {
    std::filesystem::create_directories(RecordFolder::path(::getppid()));
    EXPECT_EQ(run_in_a_process([&] { (void)undisturbed(first_meeting, rank); }), 0);
    for (const auto& round : rounds) lose_the_victim(round);
    return;
  }
  at::set_num_threads(1);
  const auto expected = undisturbed(first_meeting, rank);
  const auto descriptors = count_descriptors();
  Seen seen;
  for (const auto& round : rounds) {
    SCOPED_TRACE(fmt::format("{}, signal {}, point {}, step {}, number {}, delay {} us",
                             round.kind.name, round.loss.signal, static_cast<int>(round.loss.point),
                             round.loss.in_step, round.loss.number, round.loss.delay.count()));
    survive(round, rank, expected, seen);
    // LibTorch's queue of this thread keeps nodes of a backward that failed until the next one.
    torch::ones({1}, torch::requires_grad()).sum().backward();
    EXPECT_EQ(count_registered_mappings(), 0U);
    // The driver of a GPU has some of its own, and keeps them.
    if (test_device().is_cpu()) {
      EXPECT_EQ(count_descriptors(), descriptors);
    }
  }
  EXPECT_GT(seen.num_old, 0);
  EXPECT_GT(seen.num_new, 0);
  for (const auto& [point, seconds] : seen.fastest) {
    EXPECT_LT(seconds, kDetectionLimit) << static_cast<int>(point);
  }
}

// Numbers of meetings, from `first_meeting` on.
std::vector<Round> rounds_of(const Kind& kind, int signal, int count, int first_meeting,
                             std::chrono::milliseconds timeout) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  RandomStream random({soak ? std::stoull(*soak) : 24, random_purpose("lost ranks")},
                      static_cast<std::uint64_t>(first_meeting), 0);
  std::vector<Round> rounds;
  for (int i = 0; i < (soak ? 20 * count : count); ++i) {
    constexpr std::array kPoints{Point::in_update, Point::in_copy, Point::after_update,
                                 Point::in_backward};
    Loss loss{.signal = signal, .point = kPoints[static_cast<std::size_t>(i) % kPoints.size()]};
    loss.in_step = 2 + static_cast<int>(random.below(kSteps - 3));
    loss.number = random.below(1000);
    loss.delay = std::chrono::microseconds(random.below(400));
    const auto number = first_meeting + 2 * i;
    rounds.push_back({.kind = kind,
                      .loss = loss,
                      .meeting = MeetingPoint::of_processes(number),
                      .second_meeting = MeetingPoint::of_processes(number + 1),
                      .record = fmt::format("{}/{}", RecordFolder::path(::getppid()), number),
                      .timeout = timeout});
  }
  return rounds;
}

class KilledRank : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, KilledRank, ::testing::ValuesIn(kKinds),
                         [](const auto& each) { return each.param.name; });

TEST_P(KilledRank, IsNamedWithinASecondAndLeavesACompleteStepAndNothingElse) {
  const RecordFolder records;
  testing::run_ranks_as_processes(kSize, [](testing::Rank& self) {
    // Ranks that do not detect the end of another process are late: they wait for the timeout.
    play(self.rank(), MeetingPoint::of_processes(0),
         rounds_of(GetParam(), SIGKILL, 8, 1, std::chrono::seconds(20)));
  });
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().string().find("lockstep"), std::string::npos) << entry.path();
  }
}

// All kinds at the same time: a round waits for its timeout. One round at each point.
TEST(StoppedRank, LeavesACompleteStepWhichItDoesNotChangeWhenItWakesUp) {
  constexpr int kMeetings = 10'000;
  const RecordFolder records;
  const auto kinds = kinds_here();
  const auto body = [&](testing::Rank& self) {
    const auto number = self.rank() / kSize;
    const int meeting = (number + 1) * kMeetings;
    play(self.rank() % kSize, MeetingPoint::of_processes(meeting),
         rounds_of(kinds[static_cast<std::size_t>(number)], SIGSTOP, 4, meeting + 1,
                   std::chrono::seconds(2)));
  };
  testing::run_ranks_as_processes(kSize * static_cast<int>(kinds.size()), body,
                                  {.limit = std::chrono::minutes(15)});  // a soak has 80 rounds
}

}  // namespace
}  // namespace lockstep
