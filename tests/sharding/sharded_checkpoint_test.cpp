// Checkpoints of training with DdpOptions::shard are those of plain Ddp, byte for byte, and a run
// may change its number of ranks and its shards when it resumes: it then continues bit-identical to
// plain Ddp that resumes with that number of ranks.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <map>
#include <string>

#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_ranks_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/train/adam.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Mode {
  std::string name;
  Shard shard = Shard::none;
  Copies copies = Copies::per_rank;
};
const std::array kModes{Mode{"plain Ddp"}, Mode{"shards", Shard::optimizer},
                        Mode{"one copy", Shard::optimizer, Copies::per_host},
                        Mode{"sharded gradients, a copy per rank", Shard::gradients},
                        Mode{"sharded gradients", Shard::gradients, Copies::per_host}};

// Odd lengths; a weight in channels-last memory; buffers that differ between ranks; a frozen layer.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("image", image);
    register_module("norm", norm);
    register_module("wide", wide);
    register_module("frozen", frozen);
    register_module("head", head);
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    image->weight.set_data(image->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  at::Tensor forward(const at::Tensor& x) {
    auto hidden = torch::relu(norm->forward(image->forward(x))).flatten(1);
    hidden = torch::relu(wide->forward(hidden));
    return head->forward(frozen->forward(hidden));
  }
  torch::nn::Conv2d image{torch::nn::Conv2dOptions(3, 7, 3)};
  torch::nn::BatchNorm2d norm{7};
  torch::nn::Linear wide{7 * 6 * 6, 301};
  torch::nn::Linear frozen{301, 301};
  torch::nn::Linear head{301, 3};
};
TORCH_MODULE(Net);

at::Tensor images(int rank, std::int64_t step, at::ScalarType dtype) {
  return (torch::arange(2 * 3 * 8 * 8, torch::kDouble) * 1.3 + rank * 17 + step * 5)
      .cos()
      .reshape({2, 3, 8, 8})
      .to(dtype);
}

// One rank: resumes, trains `steps` steps and saves the last.
void train_rank(const World& world, const std::string& folder, const Mode& mode,
                at::ScalarType dtype, int steps) {
  ProcessGroup group(world);
  Net net;
  fill(*net, world.rank() + 1);
  net->to(dtype);
  DdpOptions options{.bucket_bytes = 100 << 10};
  options.shard = mode.shard;
  options.copies = mode.copies;
  Ddp ddp(*net, group, options);
  AdamW optimizer(ddp.flat(), {.weight_decay = 0.1});
  const TestLog log;
  Run run(world, folder, {.log = log.log(world.rank())});
  run.track("model", net);
  run.track("optimizer", optimizer);
  EXPECT_EQ(optimizer.sharded_tensors().empty(), mode.shard == Shard::none);
  const auto last = run.resume() + steps;
  while (run.step() < last) {
    net->forward(images(world.rank(), run.step(), dtype)).square().mean().backward();
    optimizer.step(0.01);
    optimizer.zero_grad();
    (void)run.end_of_step();
  }
  run.finish();
}

void train(const std::string& folder, int ranks, const Mode& mode, at::ScalarType dtype,
           int steps) {
  with_worlds(ranks, [&](const World& world) { train_rank(world, folder, mode, dtype, steps); });
}

// The bytes of the files of model and optimizer, after their digests have been verified.
std::map<std::string, std::string> files_of(const std::string& folder, std::int64_t step) {
  const auto disk = local_file_system();
  const auto found = verify_step(*disk, folder + "/checkpoints", step);
  std::map<std::string, std::string> files;
  for (const auto* part : {"model", "optimizer"}) {
    files[part] = disk->read(found.path + "/" + part_file(part)).text();
  }
  return files;
}

class ShardedCheckpointOf : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, ShardedCheckpointOf, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& each) { return std::string(c10::toString(each.param)); });

TEST_P(ShardedCheckpointOf, FourRanksResumesWithAnyNumberOfRanksAndAnyModeWithTheBitsOfDdp) {
  const auto dtype = GetParam();
  std::array<TestFolder, kModes.size()> saved;
  for (std::size_t i = 0; i < saved.size(); ++i) {
    train(saved[i].path(), 4, kModes[i], dtype, 3);
    EXPECT_EQ(files_of(saved[i].path(), 3) == files_of(saved[0].path(), 3), true) << kModes[i].name;
  }
  // All modes have saved the same bytes, so it does not matter from which files a run resumes.
  for (const int ranks : {1, 2, 3, 8}) {
    std::map<std::string, std::string> expected;  // of plain Ddp
    for (const auto& mode : kModes) {
      const TestFolder copy;
      fs::copy(saved.back().path(), copy.path(), fs::copy_options::recursive);
      train(copy.path(), ranks, mode, dtype, 2);
      const auto files = files_of(copy.path(), 5);
      if (expected.empty()) expected = files;
      for (const auto& [part, bytes] : expected) {
        EXPECT_EQ(files.at(part) == bytes, true)
            << part << ", " << ranks << " ranks, " << mode.name;
      }
    }
  }
}

// The same folder in all processes of a test: it is named after their parent.
std::string folder_of(pid_t parent, std::size_t mode) {
  return fs::temp_directory_path() /
         ("lockstep-sharded-" + std::to_string(parent) + "-" + std::to_string(mode));
}

// Processes, unlike threads, have mappings of their own of the one copy.
TEST(ShardedCheckpoint, OfProcessesResumesWithTheBitsOfDdp) {
  for (std::size_t i = 0; i < kModes.size(); ++i) {
    for (const int ranks : {3, 2}) {
      testing::run_ranks_as_processes(ranks, [&](testing::Rank& self) {
        train_rank(world_of_processes(self.rank(), ranks), folder_of(::getppid(), i), kModes[i],
                   at::kFloat, 2);
        self.barrier(soon());
      });
    }
  }
  const auto expected = files_of(folder_of(::getpid(), 0), 4);
  for (std::size_t i = 0; i < kModes.size(); ++i) {
    const auto folder = folder_of(::getpid(), i);
    EXPECT_EQ(files_of(folder, 4) == expected, true) << kModes[i].name;
    fs::remove_all(folder);
  }
}

// Its state is that of each rank's shards, and a checkpoint would have that of rank 0.
TEST(ShardedCheckpoint, AnOptimizerOfTorchOverTheShardsOfARankIsRefused) {
  const TestFolder folder;
  with_worlds(2, [&](const World& world) {
    const ProcessGroup group(world);
    Net net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.shard = Shard::optimizer});
    std::vector<at::Tensor> mine;
    for (const auto& shard : ddp.flat().owned()) mine.push_back(shard.value);
    torch::optim::AdamW adamw(mine);
    lockstep::Run run(world, folder.path(), {.save_every = 1});
    run.track("model", *net);
    run.track("their_optimizer", adamw);
    (void)run.resume();
    net->forward(images(world.rank(), 0, torch::kFloat)).square().mean().backward();
    adamw.step();
    ddp.flat().share_values();
    const auto message = message_of([&] { (void)run.end_of_step(); });
    EXPECT_TRUE(holds(message, "\"their_optimizer\""));
    EXPECT_TRUE(holds(message, "differ between rank 0 and rank 1"));
    EXPECT_TRUE(holds(message, "use one of lockstep"));
  });
}

}  // namespace
}  // namespace lockstep
