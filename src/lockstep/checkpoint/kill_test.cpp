// A run that is stopped by signals and killed at random points, and restarted each time, ends
// bit-identical to an uninterrupted run: parameters, optimizer, random numbers, and the samples of
// each step. Ten such runs; two hundred if LOCKSTEP_SOAK_SEED is set. With four ranks, an object is
// divided among them, so that all ranks write the files together.
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_sharded_toy_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/data/sampler.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSteps = 40;
constexpr std::int64_t kSaveEvery = 7;
constexpr int kMaxInterrupts = 2;
constexpr std::chrono::minutes kLimit{5};  // for one start: only a hang takes longer
constexpr char kDone[] = "did all steps";

// The same folder in all processes of a test: it is named after their parent.
std::string folder_of(pid_t parent, int size, std::uint64_t seed) {
  return std::filesystem::temp_directory_path() /
         ("lockstep-kill-" + std::to_string(parent) + "-" + std::to_string(size) + "-" +
          std::to_string(seed));
}

// The interruption of one start of the run: a signal to one rank, some time after its start or
// after the beginning of a step.
struct Interrupt {
  int rank = 0;
  int signal = SIGKILL;
  std::optional<std::int64_t> step = {};  // empty: before the Run is constructed
  std::chrono::microseconds after{0};
};

// Interrupt `number` of a run. Signals take turns, so that each occurs; rank and time are random.
Interrupt draw_interrupt(std::uint64_t seed, int number, int size) {
  constexpr std::array kSignals{SIGKILL, SIGTERM, SIGINT,  SIGKILL,
                                SIGKILL, SIGUSR1, SIGUSR2, SIGKILL};
  RandomStream random({seed, random_purpose("blows")}, static_cast<std::uint64_t>(number), 0);
  Interrupt interrupt{
      .rank = static_cast<int>(random.below(static_cast<std::uint64_t>(size))),
      .signal =
          kSignals[(seed * kMaxInterrupts + static_cast<std::uint64_t>(number)) % kSignals.size()]};
  if (random.below(8) > 0) interrupt.step = static_cast<std::int64_t>(random.below(kSteps));
  interrupt.after = std::chrono::microseconds(random.below(interrupt.step ? 5'000 : 100'000));
  return interrupt;
}

void signal_later(const Interrupt& interrupt) {
  std::thread([interrupt] {
    std::this_thread::sleep_for(interrupt.after);
    ::kill(::getpid(), interrupt.signal);
  }).detach();
}

void average_gradients(const ProcessGroup& group, torch::nn::Sequential& net) {
  std::vector<at::Tensor> gradients;
  for (auto& parameter : net->parameters()) gradients.push_back(parameter.grad());
  group.all_reduce(at::TensorList(gradients), ReduceOp::average).wait();
}

constexpr bool is_divided(int size) { return size == 4; }

// One start of the run on one rank: resumes and trains to the end, or to a stop. Each step draws
// per-rank random numbers (dropout) and logs its samples.
void train(int rank, int size, const std::string& folder,
           const std::optional<Interrupt>& interrupt) {
  const bool is_interrupted = interrupt && interrupt->rank == rank;
  ::signal(SIGINT, SIG_DFL);  // a shell that starts tests in the background ignores it
  if (is_interrupted && !interrupt->step) signal_later(*interrupt);
  const auto world = world_of_processes(rank, size);
  const ProcessGroup group(world);
  std::filesystem::create_directories(folder);
  torch::manual_seed(100 + rank);
  torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Dropout(0.5),
                            torch::nn::Linear(16, 1));
  for (auto& parameter : net->parameters()) {
    at::NoGradGuard no_grad;
    parameter.copy_(torch::sin(torch::arange(parameter.numel())).view_as(parameter));
  }
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  Sampler sampler(Order(90, {.seed = 3}), 0xDA7A, {.global_batch = 8, .rank = rank, .world = size});
  lockstep::Run run(world, folder, {.save_every = kSaveEvery, .seed = 3, .data_id = 0xDA7A});
  run.track("model", net);
  run.track("optimizer", optimizer);
  run.track("sampler", sampler);
  ShardedToy toy(Division::blocks, rank, size);
  if (is_divided(size)) run.track("toy", toy);
  const auto from = run.resume();
  std::ofstream log(folder + "/samples-" + std::to_string(rank), std::ios::app);
  while (run.step() < kSteps) {
    if (is_interrupted && interrupt->step && run.step() == std::max(from, *interrupt->step)) {
      signal_later(*interrupt);
    }
    const auto shard = sampler.next();
    const auto ids = torch::tensor(shard.samples).to(torch::kFloat);
    log << run.step() << ':' << torch::tensor(shard.samples).sum().item<std::int64_t>();
    for (const auto id : shard.samples) log << ' ' << id;
    log << std::endl;
    const auto input = torch::sin(ids.view({-1, 1}) * torch::arange(1, 9));
    optimizer.zero_grad();
    torch::mse_loss(net->forward(input).view({-1}), torch::cos(ids)).backward();
    average_gradients(group, net);
    optimizer.step();
    toy.set(run.step() + 1);
    if (run.end_of_step()) return;
  }
  run.finish();
  ::puts(kDone);
}

// The samples of each step. Of a repeated step, the last repetition counts.
std::map<std::int64_t, std::string> samples_of(const std::string& folder, int rank) {
  std::map<std::int64_t, std::string> steps;
  std::ifstream log(folder + "/samples-" + std::to_string(rank));
  for (std::string line; std::getline(log, line);) {
    const auto colon = line.find(':');
    if (colon != std::string::npos) steps[std::stoll(line)] = line.substr(colon);
  }
  return steps;
}

// The bytes of all tensors and states after the last step.
std::map<std::string, std::string> end_of(const std::string& folder) {
  const auto files = local_file_system();
  const auto last = verify_step(*files, folder + "/checkpoints", kSteps);
  std::map<std::string, std::string> bytes;
  for (const auto& [part, state] : last.manifest.states) bytes["state of " + part] = state;
  for (const auto& file : last.manifest.files) {
    bytes[file.name] = files->read(last.path + "/" + file.name).text();
  }
  return bytes;
}

// The starts of a run until its end.
struct Starts {
  int count = 0;
  std::map<int, int> num_interrupted;  // starts that an interrupt ended, by its signal
};

// Restarts the run until it has finished, with an interrupt in every start except the last. Every
// child process executes this function too, so it decides by outcomes only.
Starts train_to_the_end(int size, std::uint64_t seed, int max_interrupts) {
  Starts starts;
  while (true) {
    std::optional<Interrupt> interrupt;
    if (starts.count < max_interrupts) interrupt = draw_interrupt(seed, starts.count, size);
    ++starts.count;
    const auto outcomes = testing::run_ranks_as_processes(
        size,
        [&](testing::Rank& self) {
          train(self.rank(), size, folder_of(::getppid(), size, seed), interrupt);
        },
        {.limit = kLimit,
         .expect = interrupt ? testing::Expect::anything : testing::Expect::success});
    const auto is_done = [](const testing::RankOutcome& outcome) {
      return outcome.succeeded() && outcome.output.find(kDone) != std::string::npos;
    };
    if (std::ranges::all_of(outcomes, is_done)) return starts;
    if (interrupt) ++starts.num_interrupted[interrupt->signal];
  }
}

void expect_bitwise_equal_to_uninterrupted(int size, std::uint64_t first, std::uint64_t count) {
  constexpr std::uint64_t kUninterrupted = 0;
  (void)train_to_the_end(size, kUninterrupted, 0);
  std::map<int, int> num_interrupted;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto starts = train_to_the_end(size, first + i, kMaxInterrupts);
    for (const auto& [signal, num] : starts.num_interrupted) num_interrupted[signal] += num;
  }
  if (::testing::Test::HasFailure()) return;

  const auto reference = folder_of(::getpid(), size, kUninterrupted);
  ASSERT_TRUE(std::filesystem::exists(reference));
  const auto expected = end_of(reference);
  EXPECT_EQ(expected.size(), (is_divided(size) ? 5U : 4U) + static_cast<std::size_t>(size))
      << "states of optimizer and sampler; tensors of model, optimizer and toy, and of each rank";
  for (std::uint64_t i = 0; i < count; ++i) {
    SCOPED_TRACE(std::to_string(size) + " ranks, seed " + std::to_string(first + i));
    const auto folder = folder_of(::getpid(), size, first + i);
    EXPECT_EQ(end_of(folder), expected);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(samples_of(folder, rank), samples_of(reference, rank));
      EXPECT_EQ(samples_of(folder, rank).size(), static_cast<std::size_t>(kSteps));
    }
    std::filesystem::remove_all(folder);
  }
  std::filesystem::remove_all(reference);
  int num_landed = 0;
  ::printf("%d ranks, %d runs:", size, static_cast<int>(count));
  for (const auto& [signal, num] : num_interrupted) {
    ::printf(" %d x SIG%s", num, ::sigabbrev_np(signal));
    num_landed += num;
  }
  ::printf("\n");
  EXPECT_GE(num_landed, static_cast<int>(count))
      << "the other signals came after the end of the run";
}

class KilledRun : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KilledRun, ::testing::Values(2, 4));

TEST_P(KilledRun, EndsBitIdenticalToAnUninterruptedRun) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) + 1 : 1;
  expect_bitwise_equal_to_uninterrupted(GetParam(), first, soak ? 100 : 5);
}

}  // namespace
}  // namespace lockstep
