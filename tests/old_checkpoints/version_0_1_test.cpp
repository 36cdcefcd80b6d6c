// A checkpoint written by version 0.1, in the folder version_0_1: it loads, and the resumed run is
// bit-identical to version 0.1's. The run tracks everything that a training run usually tracks, and
// two ranks wrote it.
//
// The numbers below were printed by version 0.1 and are valid on every machine: gradients are sums
// of small integers and do not depend on the parameters, lockstep's AdamW is bit-identical on every
// processor, and at::randint uses the generator's integers directly.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "lockstep/checkpoint/run.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/kernels/digest.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/train/adam.h"
#include "lockstep/train/grad_scaler.h"
#include "lockstep/train/schedule.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;
constexpr std::int64_t kSavedStep = 5;
constexpr std::int64_t kLastStep = 9;

// The state of one rank after a step.
struct Figures {
  std::uint64_t digest = 0;  // of parameters, moments and both generators
  double scale = 0;          // of the GradScaler
  double best = 0;

  friend bool operator==(const Figures&, const Figures&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Figures& figures) {
    return out << std::hex << figures.digest << std::dec << " scale " << figures.scale << " best "
               << figures.best;
  }
};

// The smallest sum of a global batch so far: a tracked object of the program.
struct Best {
  [[nodiscard]] std::string state_json() const { return std::to_string(sum); }
  void load_state_json(std::string_view json) { sum = std::stoll(std::string(json)); }

  std::int64_t sum = 1'000'000;
};

at::Tensor make_inputs() {
  return at::remainder(at::arange(48 * 4, at::kFloat) * 7, 17).sub_(8).view({48, 4});
}

class Training {
 public:
  explicit Training(const World& world)
      : data_({{"input", make_inputs()}}),
        loader_(data_, {.batch = derive_batch_sizes({.world = world.size(), .global = 8}),
                        .rank = world.rank(),
                        .order = {.seed = 7}}),
        group_(world),
        ddp_(*net_, group_),
        optimizer_(ddp_.flat(), {.lr = 0.5, .betas = {0.5, 0.75}}),
        generator_(at::detail::createCPUGenerator(200 + static_cast<unsigned>(world.rank()))) {
    const at::NoGradGuard no_grad;
    for (auto& parameter : net_->parameters()) {
      parameter.copy_(at::arange(parameter.numel(), at::kFloat).view_as(parameter) / 8);
    }
    torch::manual_seed(100 + static_cast<unsigned>(world.rank()));
  }

  void track_in(Run& run) {
    run.track("model", net_);
    run.track("optimizer", optimizer_);  // "adam_w" in the old checkpoint
    run.track("loader", loader_);
    run.track("schedule", schedule_);
    run.track("scaler", scaler_);  // "grad_scaler" in the old checkpoint
    run.track("generator", generator_);
    run.track("best", best_);
  }

  void step(std::int64_t number) {
    auto input = loader_.next()["input"];
    input = input * at::randint(0, 3, input.sizes()) + at::randint(0, 3, input.sizes(), generator_);
    auto sum = input.sum();
    group_.all_reduce(sum).wait();
    best_.sum = std::min(best_.sum, sum.item().toLong());
    const auto output = net_->forward(input) * at::arange(1, 4, at::kFloat);
    scaler_.scale(output.sum()).backward();
    (void)scaler_.unscale(ddp_.flat());
    (void)scaler_.step(optimizer_, schedule_.at(number));
    scaler_.update();
    optimizer_.zero_grad();
  }

  [[nodiscard]] Figures figures() {
    std::vector<at::Tensor> tensors;
    for (const auto& parameter : net_->parameters()) tensors.push_back(parameter.detach());
    for (const auto& [name, tensor] : optimizer_.named_tensors()) tensors.push_back(tensor);
    tensors.push_back(at::detail::getDefaultCPUGenerator().get_state());
    tensors.push_back(generator_.get_state());
    std::vector<std::uint64_t> digests;
    for (const auto& tensor : tensors) {
      const auto values = tensor.contiguous();
      digests.push_back(
          digest({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()}));
    }
    return {digest(std::as_bytes(std::span(digests))), scaler_.current_scale(),
            static_cast<double>(best_.sum)};
  }

  [[nodiscard]] std::uint64_t data_id() const { return data_.id(); }

 private:
  torch::nn::Linear net_{4, 3};
  TensorDataset data_;
  Loader loader_;
  ProcessGroup group_;
  Ddp ddp_;
  AdamW optimizer_;
  Schedule schedule_ = 0.5 * linear_warmup(4).then(linear_decay(16));
  GradScaler scaler_{{.initial_scale = 4, .growth_interval = 3}};
  Best best_;
  at::Generator generator_;
};

struct Ends {
  std::int64_t from = 0;
  Figures at_saved_step = {};
  Figures at_last_step = {};
};

Ends train(const World& world, const std::string& folder) {
  Training training(world);
  Run run(world, folder,
          {.save_every = kSavedStep,
           .seed = 7,
           .data_id = training.data_id(),
           .configuration = R"({"hidden":3})"});
  training.track_in(run);
  Ends ends{.from = run.resume()};
  if (ends.from == kSavedStep) ends.at_saved_step = training.figures();
  while (run.step() < kLastStep) {
    training.step(run.step());
    EXPECT_FALSE(run.end_of_step());
    if (run.step() == kSavedStep) ends.at_saved_step = training.figures();
  }
  ends.at_last_step = training.figures();
  run.finish();
  return ends;
}

// The values printed by version 0.1, by rank.
constexpr std::array<Figures, kRanks> kAtSavedStep{
    {{0xb8b1cd4101aca08c, 8, -7}, {0x234d1b50c62afda8, 8, -7}}};
constexpr std::array<Figures, kRanks> kAtLastStep{
    {{0x29e8762a5d020c57, 32, -27}, {0xccff73efb8523e71, 32, -27}}};

// The same folder on both ranks: it is named after their parent, which removes it.
std::filesystem::path folder_of(pid_t parent) {
  return std::filesystem::temp_directory_path() /
         ("lockstep-old-checkpoint-" + std::to_string(parent));
}

enum class Start { from_the_old_checkpoint, from_step_0 };

// Trains to the last step and compares. Returns the names of the saved files.
std::set<std::string> expect_figures_of_version_0_1(Start start) {
  testing::run_ranks_as_processes(kRanks, [&](testing::Rank& self) {
    const auto folder = folder_of(::getppid());
    if (self.rank() == 0) {
      std::filesystem::create_directories(folder / "checkpoints");
      if (start == Start::from_the_old_checkpoint) {
        std::filesystem::copy(OLD_CHECKPOINTS "/version_0_1", folder / "checkpoints",
                              std::filesystem::copy_options::recursive);
      }
    }
    self.barrier(soon());
    const auto ends = train(world_of_processes(self.rank(), kRanks), folder);
    const auto rank = static_cast<std::size_t>(self.rank());
    EXPECT_EQ(ends.from, start == Start::from_step_0 ? 0 : kSavedStep);
    EXPECT_EQ(ends.at_saved_step, kAtSavedStep[rank]);
    EXPECT_EQ(ends.at_last_step, kAtLastStep[rank]);
  });
  std::set<std::string> names;
  const auto folder = folder_of(::getpid());
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    names.insert(file.path().parent_path().filename() / file.path().filename());
  }
  std::filesystem::remove_all(folder);
  return names;
}

TEST(Version01, ItsCheckpointLoadsAndTheRunContinuesBitIdentically) {
  const auto files = expect_figures_of_version_0_1(Start::from_the_old_checkpoint);
  EXPECT_TRUE(files.contains("step-5/adam_w.safetensors")) << "old checkpoints are not rewritten";
  EXPECT_TRUE(files.contains("step-9/optimizer.safetensors"));
  EXPECT_FALSE(files.contains("step-9/adam_w.safetensors"));
}

// If this fails too, the training of this test has changed, not the loading.
TEST(Version01, ARunFromStepZeroReachesTheSameState) {
  (void)expect_figures_of_version_0_1(Start::from_step_0);
}

}  // namespace
}  // namespace lockstep
