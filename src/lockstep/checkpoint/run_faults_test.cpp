// Disks that fail or lie: what a run loses (nothing that was committed), what it says, and that all
// ranks come to the same.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <fstream>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_crash_file_system_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

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
      // The damaged one is set aside, not lost; and the new one stands in its place.
      const auto files = local_file_system();
      EXPECT_EQ(verify_step(*files, copy.path() + "/checkpoints", 6).manifest.failures, 1);
      EXPECT_EQ(list_steps(*files, copy.path() + "/checkpoints").size(), 2U);
      EXPECT_EQ(std::distance(fs::directory_iterator(copy.path() + "/checkpoints"), {}), 3);
    }
  }
}

TEST(RunFaults, AFolderWithoutAValidCheckpointIsNoFreshStart) {
  const TestFolder folder;
  with_worlds(
      2, [&](const World& world) { (void)train_toy(world, folder.path(), 3, {.save_every = 3}); });
  flip_a_bit(folder.path() + "/checkpoints/step-3/toy.safetensors");
  with_worlds(2, [&](const World& world) {
    EXPECT_THROW((void)train_toy(world, folder.path(), 3, {.save_every = 3}), UsageError);
  });
}

// One rank's view of a disk that lags: some checkpoint is not there yet.
class LaggingFileSystem final : public FileSystem {
 public:
  explicit LaggingFileSystem(std::string hidden) : hidden_(std::move(hidden)) {}
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return real_->create(path);
  }
  FileBytes read(const std::string& path) override { return real_->read(path); }
  std::optional<std::vector<std::string>> list(const std::string& folder) override {
    auto names = real_->list(folder);
    if (names) std::erase(*names, hidden_);
    return names;
  }
  bool make_folder(const std::string& path) override { return real_->make_folder(path); }
  void sync_folder(const std::string& path) override { real_->sync_folder(path); }
  void rename(const std::string& from, const std::string& to) override { real_->rename(from, to); }
  void remove_file(const std::string& path) override { real_->remove_file(path); }
  void remove_folder(const std::string& path) override { real_->remove_folder(path); }
  std::shared_ptr<const void> try_lock(const std::string& folder) override {
    return real_->try_lock(folder);
  }

 private:
  std::string hidden_;
  std::shared_ptr<FileSystem> real_ = local_file_system();
};

TEST(RunFaults, RanksThatSeeDifferentCheckpointsTakeTheNewestCommonOne) {
  const TestFolder folder;
  with_worlds(
      3, [&](const World& world) { (void)train_toy(world, folder.path(), 9, {.save_every = 3}); });
  with_worlds(3, [&](const World& world) {
    RunOptions options{.save_every = 2};
    const char* hidden[] = {"nothing", "step-9", "step-3"};
    options.files = std::make_shared<LaggingFileSystem>(hidden[world.rank()]);
    EXPECT_EQ(train_toy(world, folder.path(), 8, options), 6);
  });
  // The run went on from 6, so the 9 of before is not to be found again.
  EXPECT_EQ(list_steps(*local_file_system(), folder.path() + "/checkpoints"),
            (std::vector<std::int64_t>{8, 6, 3}));
}

// What each rank heard, and at which step, when the save of `failing_step` met `error`.
struct Heard {
  std::vector<std::int64_t> steps;
  std::vector<std::string> words;
};

Heard run_until_it_fails(const std::shared_ptr<CrashFileSystem>& files, int size) {
  Heard heard{std::vector<std::int64_t>(static_cast<std::size_t>(size)),
              std::vector<std::string>(static_cast<std::size_t>(size))};
  with_worlds(size, [&](const World& world) {
    Toy toy;
    lockstep::Run run(world, "/run", {.save_every = 3, .files = files});
    run.track(toy);
    (void)run.resume();
    try {
      while (run.step() < 40) {
        toy.train();
        (void)run.end_of_step();
      }
    } catch (const Error& error) {
      heard.words[static_cast<std::size_t>(world.rank())] = error.what();
      heard.steps[static_cast<std::size_t>(world.rank())] = run.step();
    }
  });
  return heard;
}

TEST(RunFaults, EveryRankHearsOfAFullDiskInTheSameStepAndTheOldCheckpointStays) {
  for (const int error : {ENOSPC, EIO, EROFS}) {
    const auto files = std::make_shared<CrashFileSystem>();
    with_worlds(2, [&](const World& world) {
      (void)train_toy(world, "/run", 3, {.save_every = 3, .files = files});
    });
    files->settle();
    files->fail_at = 3 + error % 4;
    files->error_number = error;
    const auto heard = run_until_it_fails(files, 2);
    EXPECT_GT(heard.steps[0], 6);
    EXPECT_LE(heard.steps[0], 10) << "the save of 9 has waited for the end of that of 6";
    EXPECT_EQ(heard.steps[0], heard.steps[1]);
    for (const auto& words : heard.words) {
      EXPECT_NE(words.find("cannot "), std::string::npos) << words;
      EXPECT_NE(words.find(std::strerror(error)), std::string::npos) << words;
    }
    EXPECT_EQ(verify_step(*files, "/run/checkpoints", 3).manifest.step, 3);
    EXPECT_FALSE(files->list("/run/checkpoints/step-6"));
    with_worlds(2, [&](const World& world) {
      // These steps take no time: 9 may have been reached, and saved, before 6 was known to fail.
      const auto from = train_toy(world, "/run", 9, {.save_every = 3, .files = files});
      EXPECT_TRUE(from == 3 || from == 9) << from;
    });
    EXPECT_EQ(verify_step(*files, "/run/checkpoints", 9).manifest.step, 9);
  }
}

TEST(RunFaults, ARunMayGoOnWithoutACheckpointIfItIsToldTo) {
  const auto files = std::make_shared<CrashFileSystem>();
  files->make_folder("/run");
  files->settle();
  files->fail_at = 5;
  with_worlds(2, [&](const World& world) {
    EXPECT_EQ(train_toy(world, "/run", 9,
                        {.save_every = 3, .on_save_failure = OnSaveFailure::go_on, .files = files}),
              0);
  });
  EXPECT_FALSE(files->list("/run/checkpoints/step-3"));
  EXPECT_EQ(verify_step(*files, "/run/checkpoints", 9).manifest.step, 9);
}

// With the rights to mount one, a disk that is really full; else the seam's, as above.
TEST(RunFaults, AFullDiskOfTheMachineLeavesTheOldCheckpoint) {
  const TestFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=640k") != 0) {
    EXPECT_EQ(errno, EPERM);
    ::printf("no right to mount a small disk here; the seam's full disk is the test\n");
    return;
  }
  std::string words;
  Toy toy;
  toy.weight = at::zeros({50'000}, at::kFloat);  // 200 KB: three checkpoints fit, four do not
  try {
    lockstep::Run run(World::alone(), folder.path(), {.save_every = 1, .keep = 3});
    run.track(toy);
    (void)run.resume();
    for (int i = 0; i < 20; ++i) {
      toy.train();
      (void)run.end_of_step();
    }
  } catch (const SystemError& error) {
    words = error.what();
  }
  const auto files = local_file_system();
  const auto steps = list_steps(*files, folder.path() + "/checkpoints");
  EXPECT_NE(words.find("No space left on device"), std::string::npos) << words;
  EXPECT_GE(steps.size(), 2U);
  for (const auto step : steps) {
    EXPECT_EQ(verify_step(*files, folder.path() + "/checkpoints", step).manifest.step, step);
  }
  EXPECT_EQ(::umount(folder.path().c_str()), 0);
}

}  // namespace
}  // namespace lockstep
