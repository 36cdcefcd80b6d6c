// A training that is stopped by signals and killed at random points, again and again,
// and always started again, ends with the bits of one that nobody touched: parameters, optimizer,
// random numbers, and which samples were seen in which step. Many more, and
// with four ranks too, when LOCKSTEP_SOAK_SEED is set.
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/data/sampler.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSteps = 40;
constexpr std::int64_t kSaveEvery = 7;
constexpr char kDone[] = "did all steps";

// Known to all processes of a test by their parent.
std::string folder_of(pid_t parent, int size, std::uint64_t seed) {
  return std::filesystem::temp_directory_path() /
         ("lockstep-kill-" + std::to_string(parent) + "-" + std::to_string(size) + "-" +
          std::to_string(seed));
}

// What befalls a start of the run: a rank, a moment, a signal.
struct Blow {
  int rank = 0;
  std::chrono::microseconds after{0};
  int signal = SIGKILL;
};

void strike_later(const Blow& blow, int rank) {
  if (rank != blow.rank) return;
  std::thread([blow] {
    std::this_thread::sleep_for(blow.after);
    ::kill(::getpid(), blow.signal);
  }).detach();
}

void average_gradients(const ProcessGroup& group, torch::nn::Sequential& net) {
  std::vector<at::Tensor> gradients;
  for (auto& parameter : net->parameters()) gradients.push_back(parameter.grad());
  group.all_reduce(at::TensorList(gradients), ReduceOp::average).wait();
}

// One start of the run, as one rank: from wherever it is to the end, or to a stop. Each step draws
// random numbers of the rank's own (dropout) and writes down its samples.
void train(int rank, int size, const std::string& folder, const std::optional<Blow>& blow) {
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
  run.track(net, optimizer, sampler);
  (void)run.resume();
  if (blow) strike_later(*blow, rank);
  std::ofstream log(folder + "/samples-" + std::to_string(rank), std::ios::app);
  while (run.step() < kSteps) {
    const auto share = sampler.next();
    const auto ids = torch::tensor(share.samples).to(torch::kFloat);
    log << run.step() << ':' << torch::tensor(share.samples).sum().item<std::int64_t>();
    for (const auto id : share.samples) log << ' ' << id;
    log << std::endl;
    const auto input = torch::sin(ids.view({-1, 1}) * torch::arange(1, 9));
    optimizer.zero_grad();
    torch::mse_loss(net->forward(input).view({-1}), torch::cos(ids)).backward();
    average_gradients(group, net);
    optimizer.step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // room for blows between steps
    if (run.end_of_step()) return;
  }
  run.finish();
  ::puts(kDone);
}

// The last word on each step: a step that was done again counts as it was done last.
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

// Starts the run again until it is done, with a blow each time but the last. Returns how many blows
// there were. What is decided here hangs on outcomes alone: every child passes through it.
int train_to_the_end(int size, std::uint64_t seed, int most_blows) {
  for (int num_blows = 0;; ++num_blows) {
    RandomStream random({seed, random_purpose("blows")}, static_cast<std::uint64_t>(num_blows), 0);
    std::optional<Blow> blow;
    if (num_blows < most_blows) {
      const int signals[] = {SIGKILL, SIGKILL, SIGTERM, SIGUSR2, SIGINT};
      blow = Blow{static_cast<int>(random.below(static_cast<std::uint64_t>(size))),
                  std::chrono::microseconds(random.below(60'000)), signals[random.below(5)]};
    }
    const auto outcomes = testing::run_ranks_as_processes(
        size,
        [&](testing::Rank& self) {
          train(self.rank(), size, folder_of(::getppid(), size, seed), blow);
        },
        {.expect = blow ? testing::Expect::anything : testing::Expect::success});
    const auto is_done = [](const testing::RankOutcome& outcome) {
      return outcome.succeeded() && outcome.output.find(kDone) != std::string::npos;
    };
    if (std::ranges::all_of(outcomes, is_done)) return num_blows;
  }
}

void expect_the_bits_of_the_unbroken(int size, std::uint64_t first, std::uint64_t count) {
  constexpr std::uint64_t kUnbroken = 0;
  (void)train_to_the_end(size, kUnbroken, 0);
  int num_blows = 0;
  for (std::uint64_t i = 0; i < count; ++i) num_blows += train_to_the_end(size, first + i, 2);
  if (::testing::Test::HasFailure()) return;

  const auto reference = folder_of(::getpid(), size, kUnbroken);
  if (!std::filesystem::exists(reference)) return;  // a rank on its way to a later start
  const auto expected = end_of(reference);
  EXPECT_EQ(expected.size(), 4U + static_cast<std::size_t>(size))
      << "states of optimizer and sampler; tensors of model and optimizer, and of each rank";
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
  ::printf("%d ranks: %d stops and kills\n", size, num_blows);
}

TEST(Kill, ARunThatIsKilledAndStoppedEndsWithTheBitsOfAnUnbrokenOne) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) + 1 : 1;
  expect_the_bits_of_the_unbroken(2, first, soak ? 70 : 5);
  if (soak) expect_the_bits_of_the_unbroken(4, first, 30);
}

}  // namespace
}  // namespace lockstep
