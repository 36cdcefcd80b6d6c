// Disks that fail or lose data: no committed checkpoint is lost, the error states the cause, and
// all ranks decide the same.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_crash_file_system_internal.h"
#include "lockstep/checkpoint/test_forwarding_file_system_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void flip_a_bit(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ 4);
  file.seekp(at);
  file.put(byte);
}

TEST(RunFaults, RanksFallBackTogetherFromADamagedFile) {
  const TestFolder original;
  with_worlds(2, [&](const World& world) {
    (void)train_toy(world, original.path(), 6, {.save_every = 3});
  });
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(original.path() + "/checkpoints/step-6")) {
    names.push_back(entry.path().filename());
  }
  ASSERT_EQ(names.size(), 4U);
  for (const auto& name : names) {
    for (const auto* damage : {"flip", "cut", "remove"}) {
      const TestFolder copy;
      fs::copy(original.path(), copy.path(), fs::copy_options::recursive);
      const auto path = fs::path(copy.path()) / "checkpoints/step-6" / name;
      if (damage == std::string("flip")) flip_a_bit(path);
      if (damage == std::string("cut")) fs::resize_file(path, fs::file_size(path) - 1);
      if (damage == std::string("remove")) fs::remove(path);
      with_worlds(2, [&](const World& world) {
        EXPECT_EQ(train_toy(world, copy.path(), 6, {.save_every = 3}), 3) << damage << " " << name;
      });
      // The damaged checkpoint was renamed, not removed; the new one has its name.
      const auto files = local_file_system();
      EXPECT_EQ(verify_step(*files, copy.path() + "/checkpoints", 6).manifest.failures, 1);
      EXPECT_EQ(list_steps(*files, copy.path() + "/checkpoints").size(), 2U);
      EXPECT_EQ(std::distance(fs::directory_iterator(copy.path() + "/checkpoints"), {}), 4)
          << "two checkpoints, the renamed one and the lock";
    }
  }
}

TEST(RunFaults, AFolderWithOnlyInvalidCheckpointsIsRefused) {
  const TestFolder folder;
  with_worlds(
      2, [&](const World& world) { (void)train_toy(world, folder.path(), 3, {.save_every = 3}); });
  flip_a_bit(folder.path() + "/checkpoints/step-3/toy.safetensors");
  with_worlds(2, [&](const World& world) {
    EXPECT_THROW((void)train_toy(world, folder.path(), 3, {.save_every = 3}), UsageError);
  });
}

// One rank's view of a disk that lags: a checkpoint is not visible yet.
class LaggingFileSystem final : public ForwardingFileSystem {
 public:
  explicit LaggingFileSystem(std::string hidden) : hidden_(std::move(hidden)) {}
  std::optional<std::vector<std::string>> list(const std::string& folder) override {
    auto names = ForwardingFileSystem::list(folder);
    if (names) std::erase(*names, hidden_);
    return names;
  }

 private:
  std::string hidden_;
};

TEST(RunFaults, RanksThatSeeDifferentCheckpointsResumeFromTheNewestCommonOne) {
  const TestFolder folder;
  with_worlds(
      3, [&](const World& world) { (void)train_toy(world, folder.path(), 9, {.save_every = 3}); });
  with_worlds(3, [&](const World& world) {
    RunOptions options{.save_every = 2};
    const char* hidden[] = {"nothing", "step-9", "step-3"};
    options.files = std::make_shared<LaggingFileSystem>(hidden[world.rank()]);
    EXPECT_EQ(train_toy(world, folder.path(), 8, options), 6);
  });
  // The run has resumed from 6, so the earlier step 9 has been renamed.
  EXPECT_EQ(list_steps(*local_file_system(), folder.path() + "/checkpoints"),
            (std::vector<std::int64_t>{8, 6, 3}));
}

// The message of each rank's error, and the step at which it was thrown.
struct Failures {
  std::vector<std::int64_t> steps;
  std::vector<std::string> words;
};

Failures run_until_it_fails(const std::shared_ptr<CrashFileSystem>& files, int size) {
  Failures failures{std::vector<std::int64_t>(static_cast<std::size_t>(size)),
                    std::vector<std::string>(static_cast<std::size_t>(size))};
  with_worlds(size, [&](const World& world) {
    Toy toy;
    lockstep::Run run(world, "/run", {.save_every = 3, .files = files});
    run.track("toy", toy);
    (void)run.resume();
    try {
      while (run.step() < 40) {
        toy.train();
        (void)run.end_of_step();
      }
    } catch (const Error& error) {
      failures.words[static_cast<std::size_t>(world.rank())] = error.what();
      failures.steps[static_cast<std::size_t>(world.rank())] = run.step();
    }
  });
  return failures;
}

TEST(RunFaults, EveryRankThrowsAtAFullDiskInTheSameStepAndTheOldCheckpointStays) {
  for (const int error : {ENOSPC, EIO, EROFS}) {
    const auto files = std::make_shared<CrashFileSystem>();
    with_worlds(2, [&](const World& world) {
      (void)train_toy(world, "/run", 3, {.save_every = 3, .files = files});
    });
    files->settle();
    files->fail_at = 3 + error % 4;
    files->error_number = error;
    const auto failures = run_until_it_fails(files, 2);
    EXPECT_GT(failures.steps[0], 6);
    EXPECT_LE(failures.steps[0], 10) << "the save of step 9 waits for the end of that of step 6";
    EXPECT_EQ(failures.steps[0], failures.steps[1]);
    for (const auto& words : failures.words) {
      EXPECT_NE(words.find("cannot "), std::string::npos) << words;
      EXPECT_NE(words.find(std::strerror(error)), std::string::npos) << words;
    }
    EXPECT_EQ(verify_step(*files, "/run/checkpoints", 3).manifest.step, 3);
    EXPECT_FALSE(files->list("/run/checkpoints/step-6"));
    with_worlds(2, [&](const World& world) {
      // These steps take no time: step 9 may have been saved before the failure of 6 was known.
      const auto from = train_toy(world, "/run", 9, {.save_every = 3, .files = files});
      EXPECT_TRUE(from == 3 || from == 9) << from;
    });
    EXPECT_EQ(verify_step(*files, "/run/checkpoints", 9).manifest.step, 9);
  }
}

TEST(RunFaults, ARunContinuesWithoutACheckpointWithOnSaveFailureWarn) {
  const auto files = std::make_shared<CrashFileSystem>();
  files->make_folder("/run");
  files->settle();
  files->fail_at = 5;
  with_worlds(2, [&](const World& world) {
    EXPECT_EQ(train_toy(world, "/run", 9,
                        {.save_every = 3, .on_save_failure = OnSaveFailure::warn, .files = files}),
              0);
  });
  EXPECT_FALSE(files->list("/run/checkpoints/step-3"));
  EXPECT_EQ(verify_step(*files, "/run/checkpoints", 9).manifest.step, 9);
}

// A single-threaded process that may create namespaces can mount in a namespace of its own.
bool may_mount() {
  if (::unshare(CLONE_NEWNS) == 0) return true;
  const auto user = ::getuid();
  const auto group = ::getgid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  return true;
}

// Trains on a real file system that is full after three checkpoints.
void fill_a_disk(const std::string& folder) {
  std::string words;
  Toy toy;
  toy.weight = at::zeros({50'000}, at::kFloat);  // 200 KB: three checkpoints fit, four do not
  try {
    lockstep::Run run(World::alone(), folder, {.save_every = 1, .keep = 3});
    run.track("toy", toy);
    (void)run.resume();
    for (int i = 0; i < 20; ++i) {
      toy.train();
      (void)run.end_of_step();
    }
  } catch (const SystemError& error) {
    words = error.what();
  }
  const auto files = local_file_system();
  const auto steps = list_steps(*files, folder + "/checkpoints");
  EXPECT_NE(words.find("No space left on device"), std::string::npos) << words;
  EXPECT_GE(steps.size(), 2U);
  for (const auto step : steps) {
    EXPECT_EQ(verify_step(*files, folder + "/checkpoints", step).manifest.step, step);
  }
}

TEST(RunFaults, ARealFullDiskLeavesTheOldCheckpoints) {
  constexpr int kNoRight = 77;
  const auto outcomes = testing::run_ranks_as_processes(
      1,
      [](testing::Rank&) {
        const TestFolder folder;
        const bool mounted = may_mount() &&
                             ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                             ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=640k") == 0;
        if (!mounted) {
          fs::remove(folder.path());  // _exit destroys nothing
          ::_exit(kNoRight);
        }
        fill_a_disk(folder.path());
        EXPECT_EQ(::umount(folder.path().c_str()), 0);
      },
      {.expect = testing::Expect::anything});
  if (outcomes[0].exit_code == kNoRight) {
    GTEST_SKIP() << "a small disk needs the right to mount (root, or user namespaces)";
  }
  EXPECT_TRUE(outcomes[0].succeeded()) << outcomes[0].output;
}

}  // namespace
}  // namespace lockstep
