// Error feedback in checkpoints: a run that was stopped or killed and resumed is byte-equal to an
// uninterrupted one, and with another number of ranks no error is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/ddp/int8_compression.h"
#include "lockstep/ddp/power_sgd.h"
#include "lockstep/ddp/test_compression_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

constexpr int kLast = 8;

Int8Compression make(Int8Compression* /*kind*/) { return {}; }
PowerSgd make(PowerSgd* /*kind*/) { return PowerSgd({.rank = 2, .start_step = 2}); }

// What a rank has at the end.
struct End {
  at::Tensor parameters;
  std::map<std::string, at::Tensor> errors;
};

// Trains from the newest checkpoint to step `last`. Kills this process at the begin of step
// `killed_at`.
template <typename Compression>
End train(const World& world, const std::string& folder, int last,
          std::optional<int> killed_at = {}) {
  TestNet net;
  fill(*net, 1);
  ProcessGroup group(world);
  Ddp ddp(*net, group, {.bucket_bytes = 4000});
  auto compression = make(static_cast<Compression*>(nullptr));
  ddp.set_hook(compression.hook());
  lockstep::Run run(world, folder, {.save_every = 2});
  run.track("model", net);
  run.track("compression", compression);
  (void)run.resume();
  while (run.step() < last) {
    const auto step = static_cast<int>(run.step());
    if (killed_at == step) ::raise(SIGKILL);
    net->zero_grad();
    loss_of(net, world.rank(), step).backward();
    const torch::NoGradGuard off;
    for (auto& parameter : net->parameters()) parameter.sub_(parameter.grad(), 1e-3);
    (void)run.end_of_step();
  }
  run.finish();
  End end{torch::nn::utils::parameters_to_vector(net->parameters()).detach().clone(), {}};
  for (const auto& [name, error] : compression.rank_tensors()) end.errors[name] = error.clone();
  return end;
}

template <typename Compression>
std::vector<End> train_threads(int ranks, const std::string& folder, int last) {
  std::vector<End> ends(static_cast<std::size_t>(ranks));
  with_worlds(ranks, [&](const World& world) {
    ends[static_cast<std::size_t>(world.rank())] = train<Compression>(world, folder, last);
  });
  return ends;
}

void expect_equal(const std::vector<End>& left, const std::vector<End>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t rank = 0; rank < left.size(); ++rank) {
    EXPECT_TRUE(torch::equal(left[rank].parameters, right[rank].parameters)) << rank;
    EXPECT_FALSE(left[rank].errors.empty());
    ASSERT_EQ(left[rank].errors.size(), right[rank].errors.size());
    for (const auto& [name, error] : left[rank].errors) {
      EXPECT_TRUE(torch::equal(error, right[rank].errors.at(name))) << rank << " " << name;
      EXPECT_GT(error.abs().max().item<double>(), 0) << name;
    }
  }
}

// By parameter, over the ranks.
struct Sums {
  std::map<std::string, at::Tensor> of_errors;
  std::map<std::string, at::Tensor> of_magnitudes;
};

Sums sums_of(const std::vector<End>& ends) {
  Sums sums;
  const auto add = [](at::Tensor& sum, const at::Tensor& term) {
    sum = sum.defined() ? sum + term : term;
  };
  for (const auto& end : ends) {
    for (const auto& [name, error] : end.errors) {
      add(sums.of_errors[name], error.to(torch::kDouble));
      add(sums.of_magnitudes[name], error.to(torch::kDouble).abs());
    }
  }
  return sums;
}

void expect_same_sums(const Sums& saved, const Sums& loaded) {
  ASSERT_EQ(saved.of_errors.size(), loaded.of_errors.size());
  for (const auto& [name, sum] : saved.of_errors) {
    // An addition of two float32 values is rounded once, relative to its terms.
    const auto bound = saved.of_magnitudes.at(name).max().item<double>() * 0x1p-24;
    EXPECT_LE((sum - loaded.of_errors.at(name)).abs().max().item<double>(), bound) << name;
  }
}

template <typename Compression>
class Resumed : public ::testing::Test {};
using Compressions = ::testing::Types<Int8Compression, PowerSgd>;
TYPED_TEST_SUITE(Resumed, Compressions);

TYPED_TEST(Resumed, IsBitIdenticalToAnUninterruptedRun) {
  for (int ranks = 2; ranks <= 3; ++ranks) {
    const TestFolder whole;
    const TestFolder parts;
    const auto expected = train_threads<TypeParam>(ranks, whole.path(), kLast);
    for (const int last : {1, 3, 5}) (void)train_threads<TypeParam>(ranks, parts.path(), last);
    expect_equal(train_threads<TypeParam>(ranks, parts.path(), kLast), expected);
  }
}

TYPED_TEST(Resumed, LosesNoErrorWithAnotherNumberOfRanks) {
  for (const auto& [before, after] : {std::pair{2, 3}, {3, 2}, {4, 2}}) {
    const TestFolder folder;
    const auto saved = sums_of(train_threads<TypeParam>(before, folder.path(), 5));
    // Loads and trains no step.
    const auto loaded = sums_of(train_threads<TypeParam>(after, folder.path(), 5));
    expect_same_sums(saved, loaded);
    (void)train_threads<TypeParam>(after, folder.path(), 7);
  }
}

// The bytes of the last checkpoint.
std::map<std::string, std::string> files_of(const std::string& folder) {
  const auto files = local_file_system();
  const auto last = verify_step(*files, folder + "/checkpoints", kLast);
  std::map<std::string, std::string> bytes;
  for (const auto& [part, state] : last.manifest.states) bytes["state of " + part] = state;
  for (const auto& file : last.manifest.files) {
    bytes[file.name] = files->read(last.path + "/" + file.name).text();
  }
  return bytes;
}

// The parent's process id names one folder for all ranks.
std::string folder_of(int parent, const std::string& name) {
  return "/tmp/lockstep-compression-" + std::to_string(parent) + name;
}

TYPED_TEST(Resumed, AfterAKillIsBitIdenticalToAnUninterruptedRun) {
  const auto run = [](const std::string& name, std::optional<int> killed_at, int number) {
    (void)testing::run_ranks_as_processes(
        2,
        [&](testing::Rank& self) {
          torch::manual_seed(100 + self.rank());  // the state of the generator is saved too
          const auto world = world_of_processes(self.rank(), 2, number);
          (void)train<TypeParam>(world, folder_of(::getppid(), name), kLast,
                                 self.rank() == 1 ? killed_at : std::nullopt);
        },
        {.expect = killed_at ? testing::Expect::anything : testing::Expect::success});
  };
  run("whole", {}, 0);
  run("killed", 5, 1);
  run("killed", {}, 2);
  const auto whole = folder_of(::getpid(), "whole");
  const auto killed = folder_of(::getpid(), "killed");
  ASSERT_TRUE(std::filesystem::exists(whole));
  const auto expected = files_of(whole);
  EXPECT_TRUE(expected.contains("rank-00001.safetensors"));
  const auto found = files_of(killed);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, bytes] : expected) {
    EXPECT_TRUE(found.contains(name) && found.at(name) == bytes) << name << " differs";
  }
  std::filesystem::remove_all(whole);
  std::filesystem::remove_all(killed);
}

}  // namespace
}  // namespace lockstep
