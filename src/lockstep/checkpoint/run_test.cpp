#include "lockstep/checkpoint/run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>

#include <atomic>
#include <semaphore>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/loading.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_forwarding_file_system_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> steps_of(const std::string& folder) {
  return list_steps(*local_file_system(), folder + "/checkpoints");
}

class RunOfRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RunOfRanks, ::testing::Range(1, 5));

TEST_P(RunOfRanks, SavesWhenDueAndResumesFromTheNewest) {
  const TestFolder folder;
  for (const auto& [from, last] : {std::pair{0, 7}, {6, 6}, {6, 13}, {12, 14}}) {
    with_worlds(GetParam(), [&](const World& world) {
      EXPECT_EQ(train_toy(world, folder.path(), last, {.save_every = 3}), from);
    });
  }
  EXPECT_EQ(steps_of(folder.path()), (std::vector<std::int64_t>{12, 9, 6}));
}

TEST_P(RunOfRanks, FinishSavesTheLastStepOnce) {
  const TestFolder folder;
  with_worlds(GetParam(), [&](const World& world) {
    Toy toy;
    lockstep::Run run(world, folder.path(), {.save_every = 2, .configuration = R"({"lr":0.5})"});
    run.track("toy", toy);
    EXPECT_EQ(run.resume(), 0);
    for (int i = 0; i < 5; ++i) {
      toy.train();
      EXPECT_FALSE(run.end_of_step());
    }
    run.finish();
    run.finish();
    const auto saved = verify_step(*local_file_system(), run.checkpoints_folder(), 5);
    EXPECT_EQ(saved.manifest.reason, SaveReason::finish);
    EXPECT_EQ(saved.manifest.world, world.size());
    EXPECT_EQ(saved.manifest.configuration, R"({"lr":0.5})");
    EXPECT_EQ(saved.manifest.states.at("toy"), "5");
    EXPECT_EQ(saved.manifest.files.size(), 1U + static_cast<std::size_t>(world.size()));
  });
  // A resume from the end of a run is not counted as a failure; one from a periodic save is.
  for (const auto& [last, failures] : {std::pair{6, 0}, {6, 1}, {6, 2}}) {
    with_worlds(GetParam(), [&](const World& world) {
      Toy toy;
      lockstep::Run run(world, folder.path(), {.save_every = 1});
      run.track("toy", toy);
      const auto from = run.resume();
      EXPECT_EQ(run.failures(), failures) << from;
      toy.train();
      (void)run.end_of_step();
    });
  }
}

TEST_P(RunOfRanks, FinishAtAStepThatIsAlreadySavedMarksItAsTheEnd) {
  const TestFolder folder;
  const auto train = [&](std::int64_t last, std::int64_t failures, bool finishes) {
    with_worlds(GetParam(), [&](const World& world) {
      Toy toy;
      lockstep::Run run(world, folder.path(), {.save_every = 2});
      run.track("toy", toy);
      (void)run.resume();
      EXPECT_EQ(run.failures(), failures);
      while (run.step() < last) {
        toy.train();
        EXPECT_FALSE(run.end_of_step());
      }
      if (finishes) run.finish();
      if (finishes) run.finish();
    });
  };
  train(4, 0, true);  // saves of steps 2 and 4 were due; 4 is the end
  const auto saved = verify_step(*local_file_system(), folder.path() + "/checkpoints", 4);
  EXPECT_EQ(saved.manifest.reason, SaveReason::finish);
  EXPECT_EQ(saved.manifest.states.at("toy"), "4");
  train(6, 0, false);  // ends without finish()
  train(6, 1, true);   // has no step left, and marks the interrupted run as finished
  train(8, 1, true);
  train(8, 1, true);
}

TEST_P(RunOfRanks, ResumesAtAnotherWorldSize) {
  const TestFolder folder;
  with_worlds(
      2, [&](const World& world) { (void)train_toy(world, folder.path(), 4, {.save_every = 4}); });
  with_worlds(GetParam(), [&](const World& world) {
    EXPECT_EQ(train_toy(world, folder.path(), 8, {.save_every = 4}), 4);
  });
  with_worlds(2, [&](const World& world) {
    EXPECT_EQ(train_toy(world, folder.path(), 8, {.save_every = 4}), 8);
  });
}

// As a loop with evaluation does: its toy is best at steps 2 and 5.
void train_to_nine(const World& world, const std::string& folder, std::int64_t from) {
  Toy toy;
  lockstep::Run run(world, folder, {.save_every = 3, .keep = 2});
  run.track("toy", toy);
  EXPECT_EQ(run.resume(), from);
  while (run.step() < 9) {
    toy.train();
    StepEnd end;
    if (toy.steps == 2 || toy.steps == 5) end.keep_as.emplace_back("best");
    if (toy.steps == 1) end.keep_as.emplace_back("first");
    EXPECT_FALSE(run.end_of_step(end));
  }
}

TEST_P(RunOfRanks, AStepKeptUnderANameStaysUntilALaterOneHasTheName) {
  const TestFolder folder;
  const auto files = local_file_system();
  const auto checkpoints = folder.path() + "/checkpoints";
  with_worlds(GetParam(), [&](const World& world) { train_to_nine(world, folder.path(), 0); });
  EXPECT_EQ(steps_of(folder.path()), (std::vector<std::int64_t>{9, 6, 5, 1}));
  const std::map<std::string, std::int64_t> kept{{"best", 5}, {"first", 1}};
  EXPECT_EQ(kept_steps(*files, checkpoints), kept);
  EXPECT_EQ(verify_step(*files, checkpoints, 5).manifest.states.at("toy"), "5");
  EXPECT_EQ(verify_step(*files, checkpoints, 5).manifest.reason, SaveReason::asked);
  // The next start keeps them too.
  with_worlds(GetParam(), [&](const World& world) {
    EXPECT_EQ(train_toy(world, folder.path(), 15, {.save_every = 1, .keep = 2}), 9);
  });
  EXPECT_EQ(steps_of(folder.path()), (std::vector<std::int64_t>{15, 14, 5, 1}));
  // A run that resumes from an earlier step writes its own.
  for (const int step : {14, 15}) {
    std::filesystem::remove(checkpoints + "/" + step_name(step) + "/manifest.json");
  }
  std::filesystem::remove(checkpoints + "/step-5/manifest.json");
  with_worlds(GetParam(), [&](const World& world) { train_to_nine(world, folder.path(), 1); });
  EXPECT_EQ(steps_of(folder.path()), (std::vector<std::int64_t>{9, 6, 5, 1}));
  EXPECT_EQ(kept_steps(*files, checkpoints), kept);
}

TEST(Run, WorksForAProcessAlone) {
  const TestFolder folder;
  EXPECT_EQ(train_toy(World::alone(), folder.path(), 4, {.save_every = 2}), 0);
  EXPECT_EQ(train_toy(World::alone(), folder.path(), 4, {.save_every = 2}), 4);
}

TEST(Run, AllRanksStopAtTheSameStepAfterASignalToOne) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    testing::run_ranks_as_processes(2, [&](testing::Rank& self) {
      struct sigaction before {};
      ::sigaction(signal, nullptr, &before);
      {
        const auto world = world_of_processes(self.rank(), 2);
        Toy toy;
        // The parent's process id names one folder for all ranks; a TestFolder would be one each.
        const auto path = "/tmp/lockstep-stop-" + std::to_string(::getppid());
        lockstep::Run run(world, path, {.save_every = 1000});
        run.track("toy", toy);
        const auto from = run.resume();
        bool told = false;
        while (!told && run.step() < from + 50) {
          toy.train();
          if (self.rank() == 1 && run.step() == from + 4) ::raise(signal);
          told = run.end_of_step();
        }
        EXPECT_TRUE(told);
        EXPECT_EQ(run.step(), from + 6) << "the step after the one that carried the request";
        EXPECT_EQ(run.stop_signal().has_value(), self.rank() == 1);
        EXPECT_EQ(steps_of(path).front(), run.step());
        EXPECT_EQ(run.failures(), 0);
      }
      struct sigaction after {};
      ::sigaction(signal, nullptr, &after);
      EXPECT_EQ(after.sa_handler, before.sa_handler);
    });
  }
  std::filesystem::remove_all("/tmp/lockstep-stop-" + std::to_string(::getpid()));
}

TEST(Run, RefusesInvalidOptionsNamesAndCallOrder) {
  const TestFolder folder;
  Toy toy;
  Toy other;
  torch::nn::Linear net(1, 1);
  const auto world = World::alone();
  EXPECT_THROW(lockstep::Run(world, folder.path(), {.keep = 1}), UsageError);
  EXPECT_THROW(lockstep::Run(world, folder.path(), {.save_every = -1}), UsageError);
  EXPECT_THROW(lockstep::Run(world, folder.path(), {.configuration = "{"}), UsageError);
  lockstep::Run run(world, folder.path(), {.save_every = 1});
  run.track("toy", toy);
  try {
    run.track("toy", net);
    ADD_FAILURE() << "a name was given twice";
  } catch (const UsageError& error) {
    const std::string words = error.what();
    for (const auto* part : {"\"toy\"", "an object with named_tensors()", "a module"}) {
      EXPECT_NE(words.find(part), std::string::npos) << words;
    }
  }
  EXPECT_THROW(run.track("default_generator", other), UsageError) << "every run has that one";
  EXPECT_THROW(run.track("a/b", other), UsageError);
  EXPECT_THROW(run.track("rank-1", other), UsageError);
  run.track("other", other);
  EXPECT_THROW((void)run.end_of_step(), UsageError) << "resume() comes first";
  (void)run.resume();
  lockstep::Run second(world, folder.path());
  EXPECT_THROW((void)second.resume(), UsageError) << "the folder is in use";
  EXPECT_THROW(run.track("late", other), UsageError);
  EXPECT_THROW((void)run.end_of_step({.keep_as = {"the best"}}), UsageError);
  EXPECT_EQ(run.step(), 0) << "refused before the step ended";
}

std::string refusal_to_resume(Run& run) {
  try {
    (void)run.resume();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "resumed";
}

TEST(Run, NamesEveryDifferenceFromTheCheckpoint) {
  const TestFolder folder;
  const auto world = World::alone();
  (void)train_toy(world, folder.path(), 2, {.save_every = 2, .seed = 1, .data_id = 2});
  Toy toy;
  {
    lockstep::Run run(world, folder.path(), {.seed = 2, .data_id = 2});
    run.track("toy", toy);
    EXPECT_NE(refusal_to_resume(run).find("has seed 1, this run has seed 2"), std::string::npos);
  }
  {
    lockstep::Run run(world, folder.path(), {.seed = 1});
    run.track("toy", toy);
    EXPECT_NE(refusal_to_resume(run).find("has data id 0000000000000002"), std::string::npos);
  }
  {
    lockstep::Run run(world, folder.path(), {.seed = 1, .data_id = 2});
    run.track("teacher", toy);
    const auto words = refusal_to_resume(run);
    EXPECT_NE(words.find("teacher is tracked but not in the checkpoint"), std::string::npos);
    EXPECT_NE(words.find("toy is in the checkpoint but not tracked"), std::string::npos);
  }
  lockstep::Run run(world, folder.path(), {.seed = 1, .data_id = 2});
  toy.weight = at::zeros({7}, at::kFloat);
  run.track("toy", toy);
  EXPECT_NE(refusal_to_resume(run).find(
                "toy: different: \"weight\" is F32[100] in the checkpoint and F32[7] in this run"),
            std::string::npos);
}

// Each write of tensors waits for the semaphore.
class GatedFileSystem final : public ForwardingFileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    if (path.ends_with(".safetensors")) {
      ++num_waiting;
      gate.acquire();
    }
    return ForwardingFileSystem::create(path);
  }

  std::counting_semaphore<> gate{0};
  std::atomic<int> num_waiting{0};
};

TEST(Run, SavesTheStateOfTheStepAlthoughTheTensorsChangeMeanwhile) {
  const TestFolder folder;
  const auto files = std::make_shared<GatedFileSystem>();
  Toy toy;
  lockstep::Run run(World::alone(), folder.path(), {.save_every = 1, .files = files});
  run.track("toy", toy);
  (void)run.resume();
  toy.train();
  EXPECT_FALSE(run.end_of_step());  // returns although the write is blocked
  toy.train();
  toy.weight.fill_(-1);
  EXPECT_TRUE(steps_of(folder.path()).empty());
  std::jthread opener([&] {  // the second save waits for the first, and so for this
    while (files->num_waiting == 0) std::this_thread::yield();
    files->gate.release(100);
  });
  EXPECT_FALSE(run.end_of_step());
  const auto first = verify_step(*local_file_system(), run.checkpoints_folder(), 1);
  const SafetensorsFile file(FileBytes::map(first.path + "/toy.safetensors"));
  EXPECT_TRUE(read_tensor(file, "weight").equal(at::arange(100, at::kFloat)));
  EXPECT_EQ(first.manifest.states.at("toy"), "1");
}

}  // namespace
}  // namespace lockstep
