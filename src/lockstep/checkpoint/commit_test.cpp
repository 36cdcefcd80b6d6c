#include "lockstep/checkpoint/commit.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_crash_file_system_internal.h"

namespace lockstep {
namespace {

const std::string kFolder = "/c";

// The contents of a file: its name and step, so that no two files are equal.
std::string content(const std::string& name, std::int64_t step) {
  return name + " of step " + std::to_string(step) + " " +
         std::string(40, static_cast<char>('a' + step));
}

FilePart write(FileSystem& files, std::int64_t step, const std::string& name,
               std::span<const std::array<std::size_t, 2>> ranges, bool is_shared) {
  const auto bytes = content(name, step);
  FileToWrite file{.name = name, .bytes = bytes.size(), .is_shared = is_shared};
  for (const auto& [begin, end] : ranges) {
    const auto part = std::string_view(bytes).substr(begin, end - begin);
    file.extents.push_back({begin, std::as_bytes(std::span(part))});
  }
  return write_durably(files, temporary_path(kFolder, step, "n"), file);
}

FilePart write(FileSystem& files, std::int64_t step, const std::string& name) {
  const std::array<std::size_t, 2> all[] = {{0, 16}, {16, std::string::npos}};
  return write(files, step, name, all, false);
}

// A file of two ranks: rank 1 writes its part after the last write and before the sync of rank 0,
// so that the bytes of both are not synced at the same time. Both have bytes of the same words.
std::vector<FilePart> write_shared(CrashFileSystem& files, std::int64_t step,
                                   const std::string& name) {
  const std::array<std::size_t, 2> of_rank_0[] = {{0, 13}, {29, std::string::npos}};
  const std::array<std::size_t, 2> of_rank_1[] = {{13, 29}};
  std::vector<FilePart> parts(2);
  files.before = [&](const std::string& operation) {
    if (!operation.starts_with("sync ")) return;
    files.before = nullptr;
    parts[1] = write(files, step, name, of_rank_1, true);
  };
  parts[0] = write(files, step, name, of_rank_0, true);
  return parts;
}

// A save of two ranks, each with its own file, and of a file that they share; then old checkpoints
// are removed.
void save(CrashFileSystem& files, std::int64_t step, std::set<std::int64_t> valid) {
  files.make_folder(temporary_path(kFolder, step, "n"));
  Manifest manifest{.lockstep_version = "0", .step = step, .world = 2};
  auto parts = write_shared(files, step, "model.safetensors");
  for (const std::string name : {"rank-00001", "rank-00000"}) {
    parts.push_back(write(files, step, name + ".safetensors"));
  }
  manifest.files = combine_parts(parts);
  commit(files, kFolder, "n", manifest);
  valid.insert(step);
  const auto stays = prune(files, kFolder, {.valid = valid, .newest = 2}, "n");
  if (!stays.empty()) throw SystemError(stays.front(), 0);
}

// A disk with checkpoints 1 and 2, completely synced.
std::unique_ptr<CrashFileSystem> with_two() {
  auto files = std::make_unique<CrashFileSystem>();
  files->make_folder(kFolder);
  save(*files, 1, {});
  save(*files, 2, {1});
  files->settle();
  return files;
}

// The newest step that verifies, as a loader finds it; its bytes are compared with what was saved.
// -1: none verifies; -2: one verifies but has other bytes.
std::int64_t newest(FileSystem& files) {
  for (const auto step : list_steps(files, kFolder)) {
    try {
      const auto found = verify_step(files, kFolder, step);
      for (const auto& file : found.manifest.files) {
        if (files.read(found.path + "/" + file.name).text() != content(file.name, step)) return -2;
      }
      return found.manifest.files.size() == 3 ? step : -2;
    } catch (const Error&) {
    }
  }
  return -1;
}

struct Crashes {
  int num_disks = 0;
  int num_wrong = 0;  // neither the old nor the new one, or not the new one after its commit
};

// Saves step 3, interrupted at every operation and not at all, and examines every resulting disk.
Crashes crash_everywhere(std::optional<int> skip_sync) {
  Crashes crashes;
  for (int cut = 0;; ++cut) {
    const auto files = with_two();
    files->cut_at = cut;
    files->skip_sync = skip_sync;
    bool done = true;
    bool committed = false;
    try {
      save(*files, 3, {1, 2});
    } catch (const Cut&) {
      done = false;
    }
    for (const auto& operation : files->operations()) {
      committed = committed || operation == "sync_folder " + kFolder;
    }
    crashes.num_disks += files->for_each_crash([&](CrashFileSystem& disk) {
      const auto found = newest(disk);
      if (found != 3 && (committed || found != 2)) ++crashes.num_wrong;
      return true;
    });
    if (done) return crashes;
  }
}

TEST(Commit, LeavesTheOldOrTheNewCheckpointWhereverASaveIsInterrupted) {
  const auto crashes = crash_everywhere(std::nullopt);
  EXPECT_EQ(crashes.num_wrong, 0);
  EXPECT_GT(crashes.num_disks, 500);
  ::printf("%d disks after a cut\n", crashes.num_disks);
}

TEST(Commit, NeedsEveryOneOfItsSyncs) {
  const auto files = with_two();
  save(*files, 3, {1, 2});
  EXPECT_EQ(files->num_syncs(), 7)
      << "a file of two writers, two files, the manifest, their folder, the parent folder";
  for (int sync = 0; sync < files->num_syncs(); ++sync) {
    EXPECT_GT(crash_everywhere(sync).num_wrong, 0) << "sync " << sync << " makes no difference";
  }
}

// Amends step 2, interrupted at every operation and not at all. Counts the disks on which it is
// neither the old nor the new one, or not the new one after amend() has returned.
int wrong_after_amending(std::optional<int> skip_sync) {
  int num_wrong = 0;
  for (int cut = 0;; ++cut) {
    const auto files = with_two();
    auto manifest = verify_step(*files, kFolder, 2).manifest;
    manifest.reason = SaveReason::finish;
    files->cut_at = cut;
    files->skip_sync = skip_sync;
    bool done = true;
    try {
      amend(*files, kFolder, manifest);
    } catch (const Cut&) {
      done = false;
    }
    (void)files->for_each_crash([&](CrashFileSystem& disk) {
      const bool there = newest(disk) == 2;
      const bool amended = there && verify_step(disk, kFolder, 2).manifest == manifest;
      if (!there || (done && !amended)) ++num_wrong;
      if (there) {
        amend(disk, kFolder, manifest);  // succeeds whatever the first attempt has left
        if (verify_step(disk, kFolder, 2).manifest != manifest) ++num_wrong;
      }
      return true;
    });
    if (done) return num_wrong;
  }
}

TEST(Commit, AmendsAManifestOrLeavesItWhereverItIsInterruptedAndNeedsBothSyncs) {
  EXPECT_EQ(wrong_after_amending(std::nullopt), 0);
  EXPECT_GT(wrong_after_amending(0), 0) << "of the manifest";
  EXPECT_GT(wrong_after_amending(1), 0) << "of its folder";
}

TEST(Commit, EndsAtAnErrorOfAnyOperationAndLeavesTheOldCheckpoint) {
  const auto counted = with_two();
  save(*counted, 3, {1, 2});
  for (int operation = 0; operation < counted->num_operations(); ++operation) {
    for (const int error : {ENOSPC, EIO, EROFS}) {
      const auto files = with_two();
      files->fail_at = operation;
      files->error_number = error;
      try {
        save(*files, 3, {1, 2});
        FAIL() << "operation " << operation << " was not noticed";
      } catch (const SystemError& thrown) {
        EXPECT_NE(std::string(thrown.what()).find(std::strerror(error)), std::string::npos);
      }
      remove_quietly(*files, temporary_path(kFolder, 3, "n"));
      EXPECT_GE(newest(*files), 2);
      // No failed sync is retried, and the next save does not depend on this one.
      save(*files, 4, {1, 2});
      EXPECT_EQ(newest(*files), 4);
    }
  }
}

TEST(Commit, RemovesOnlyCheckpointsOlderThanTheNewestValidOnes) {
  CrashFileSystem files;
  files.make_folder(kFolder);
  std::set<std::int64_t> valid;
  for (std::int64_t step = 1; step <= 5; ++step) {
    save(files, step, valid);
    valid.insert(step);
  }
  EXPECT_EQ(list_steps(files, kFolder), (std::vector<std::int64_t>{5, 4}));
  // Unverified checkpoints do not count: 5 and 4 stay beside two unverified newer ones.
  files.make_folder(kFolder + "/step-6");
  files.make_folder(kFolder + "/step-7");
  EXPECT_TRUE(prune(files, kFolder, {.valid = {4, 5}, .newest = 2}, "m").empty());
  EXPECT_EQ(list_steps(files, kFolder), (std::vector<std::int64_t>{7, 6, 5, 4}));
}

TEST(Commit, RemovesNoStepThatIsKeptUnderAName) {
  const std::vector<std::int64_t> steps{9, 8, 7, 3, 2, 1};
  const KeptSteps keep{.valid = {7, 8, 9}, .newest = 2, .named = {{"best", 2}, {"first", 1}}};
  EXPECT_EQ(steps_to_remove(steps, keep), (std::vector<std::int64_t>{7, 3}));
  EXPECT_EQ(steps_to_remove(steps, {.valid = {9}, .newest = 2}), std::vector<std::int64_t>{});
  EXPECT_EQ(steps_to_remove(steps, {.valid = {9, 8}, .newest = 2, .named = {{"best", 9}}}),
            (std::vector<std::int64_t>{7, 3, 2, 1}));
}

TEST(Commit, RenamesAnExistingFolderOfTheSameStep) {
  CrashFileSystem files;
  files.make_folder(kFolder);
  save(files, 1, {});
  files.make_folder(kFolder + "/step-2");  // damaged: without a manifest
  files.make_folder(kFolder + "/step-9");
  save(files, 2, {1});
  EXPECT_EQ(set_newer_aside(files, kFolder, 2, "n"), std::vector<std::int64_t>{9});
  EXPECT_EQ(newest(files), 2);
  EXPECT_TRUE(files.list(kFolder + "/step-2.aside-n"));
  EXPECT_TRUE(files.list(kFolder + "/step-9.aside-n"));
}

TEST(Commit, SweepsInterruptedSavesAndNothingElse) {
  const auto files = with_two();
  const std::string cut = "step-3.tmp-0123456789abcdef-12";
  const std::string removed = "step-1.gone-0123456789abcdef-0";
  files->make_folder(kFolder + "/" + cut);
  (void)files->create(kFolder + "/" + cut + "/model.safetensors");
  (void)files->create(kFolder + "/" + cut + "/manifest.json");
  files->make_folder(kFolder + "/" + removed);
  files->make_folder(kFolder + "/step-0.tmp-import");
  const std::vector<std::string> others{"mine.tmp-0123456789abcdef-12",
                                        "step-1",
                                        "step-2",
                                        "step-4.aside-0123456789abcdef-12",
                                        "step-5.tmp-0123456789abcde-12",
                                        "step-5.tmp-0123456789abcdef",
                                        "step-5.tmp-0123456789abcdef-",
                                        "step-5.tmp-0123456789abcdef-x",
                                        "step-5.tmp-x"};
  for (const auto& name : others) files->make_folder(kFolder + "/" + name);
  const auto swept = sweep(*files, kFolder);
  EXPECT_EQ(swept.removed, (std::vector<std::string>{"step-0.tmp-import", removed, cut}));
  EXPECT_TRUE(swept.stays.empty());
  EXPECT_EQ(*files->list(kFolder), others);
}

TEST(Commit, AcceptsOnlyNamesThatItWrites) {
  EXPECT_EQ(try_step_of("step-0"), 0);
  EXPECT_EQ(try_step_of("step-1200"), 1200);
  for (const auto* name : {"step-", "step-01", "step--1", "step-1x", "step-1.tmp-a", "Step-1", "1",
                           "step-9223372036854775808"}) {
    EXPECT_EQ(try_step_of(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace lockstep
