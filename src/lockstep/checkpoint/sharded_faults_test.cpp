// Ranks that write one file together, while the disk fails or the power is lost: the old or the new
// checkpoint is valid, and all ranks decide the same.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_crash_file_system_internal.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_sharded_toy_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

namespace lockstep {
namespace {

const std::string kCheckpoints = "/run/checkpoints";

// Resumes and makes one step, which is saved. Returns the step it resumed from, and the errors.
struct Outcome {
  std::int64_t from = -1;
  std::array<std::string, 2> words = {};
};

Outcome train(const std::shared_ptr<CrashFileSystem>& files, Division division) {
  Outcome outcome;
  with_worlds(2, [&](const World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    ShardedToy toy(division, world.rank(), 2);
    const TestLog log;
    Run run(world, "/run", {.log = log.log(world.rank()), .files = files});
    run.track("toy", toy);
    const auto from = run.resume();
    EXPECT_TRUE(from == 0 || toy.is_after(from));
    if (rank == 0) outcome.from = from;
    toy.set(from + 1);
    try {
      (void)run.end_of_step();
      run.finish();
    } catch (const Error& error) {
      outcome.words[rank] = error.what();
    }
  });
  return outcome;
}

// The newest step that verifies; -1: none.
std::int64_t newest(FileSystem& files) {
  for (const auto step : list_steps(files, kCheckpoints)) {
    try {
      return verify_step(files, kCheckpoints, step).manifest.step;
    } catch (const Error&) {
    }
  }
  return -1;
}

std::shared_ptr<CrashFileSystem> with_one_checkpoint() {
  auto files = std::make_shared<CrashFileSystem>();
  EXPECT_EQ(train(files, Division::blocks).from, 0);
  files->settle();
  return files;
}

// The save runs as it does on a real disk; before each of its operations, every disk is examined
// that a loss of power at this moment could leave.
TEST(ShardedFaults, ALossOfPowerAtAnyMomentLeavesTheOldOrTheNewCheckpoint) {
  const auto files = with_one_checkpoint();
  int num_disks = 0;
  int num_wrong = 0;
  bool is_committed = false;
  files->before = [&](const std::string& /*operation*/) {
    const auto& done = files->operations();
    is_committed = is_committed || (!done.empty() && done.back() == "sync_folder " + kCheckpoints);
    num_disks += files->for_each_crash([&](CrashFileSystem& disk) {
      const auto found = newest(disk);
      if (found != 2 && (is_committed || found != 1)) ++num_wrong;
      return true;
    });
  };
  EXPECT_EQ(train(files, Division::blocks).from, 1);
  files->before = nullptr;
  EXPECT_EQ(num_wrong, 0);
  EXPECT_GT(num_disks, 200);
  ::printf("%d disks\n", num_disks);
  EXPECT_EQ(newest(*files), 2);
}

TEST(ShardedFaults, AnErrorOfAnOperationEndsTheSaveOnAllRanksAndTheOldCheckpointStays) {
  const auto files = with_one_checkpoint();
  (void)train(files, Division::blocks);
  const int num_operations = files->num_operations();
  int num_failed = 0;
  for (int operation = 0; operation < num_operations; operation += 2) {
    const auto before = newest(*files);
    files->settle();
    files->fail_at = operation;
    files->error_number = ENOSPC;
    const auto outcome = train(files, Division::blocks);
    files->fail_at = std::nullopt;
    EXPECT_EQ(outcome.from, before);
    // An error after the commit, when an old checkpoint is removed, is only logged.
    EXPECT_EQ(outcome.words[0].empty(), outcome.words[1].empty()) << operation;
    if (outcome.words[0].empty()) continue;
    ++num_failed;
    for (const auto& words : outcome.words) {
      EXPECT_NE(words.find("No space left on device"), std::string::npos) << words;
    }
    EXPECT_EQ(newest(*files), before) << operation;
    const auto next = train(files, Division::last);
    EXPECT_EQ(next.words[0] + next.words[1], "");
    EXPECT_EQ(newest(*files), before + 1);
  }
  EXPECT_GE(num_failed, 6) << "of two writers of one file, two files and the commit";
}

}  // namespace
}  // namespace lockstep
