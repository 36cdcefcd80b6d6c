// Sweeping and pruning on the real file system: what they remove, and what they never touch.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kNonce[] = "0123456789abcdef-4";

class Removal : public ::testing::Test {
 protected:
  Removal() { fs::create_directories(checkpoints); }

  // Creates a folder with these files.
  [[nodiscard]] static fs::path make(const fs::path& path, const std::vector<std::string>& names) {
    fs::create_directories(path);
    for (const auto& name : names) std::ofstream(path / name) << name;
    return path;
  }

  const TestFolder folder;
  const fs::path checkpoints = folder.path() + "/checkpoints";
  const std::shared_ptr<FileSystem> files = local_file_system();
};

TEST_F(Removal, NeverFollowsASymbolicLink) {
  const auto thesis = make(folder.path() + "/thesis", {"one.tex", "model.safetensors"});
  const auto archive = make(folder.path() + "/archive", {"manifest.json", "model.safetensors"});
  const auto swept = checkpoints / fmt::format("step-5.tmp-{}", kNonce);
  fs::create_directory_symlink(thesis, swept);
  fs::create_directory_symlink(archive, checkpoints / "step-1");
  const auto inside = make(checkpoints / fmt::format("step-6.tmp-{}", kNonce), {});
  fs::create_symlink(thesis / "one.tex", inside / "model.safetensors");
  (void)sweep(*files, checkpoints);
  (void)prune(*files, checkpoints, {.valid = {2, 3}, .newest = 2}, kNonce);
  for (const auto& name : {"one.tex", "model.safetensors"}) EXPECT_TRUE(fs::exists(thesis / name));
  for (const auto& name : {"manifest.json", "model.safetensors"}) {
    EXPECT_TRUE(fs::exists(archive / name));
  }
  EXPECT_FALSE(fs::is_symlink(swept)) << "the link itself is removed";
  EXPECT_FALSE(fs::exists(inside));
  EXPECT_FALSE(fs::is_symlink(checkpoints / "step-1"));
}

TEST_F(Removal, RemovesOnlyNamesThatLockstepWrites) {
  const auto mine = make(checkpoints / "step-5.tmp-mine", {"model.safetensors"});
  const auto other = make(checkpoints / fmt::format("step-6.tmp-{}", kNonce),
                          {"notes.txt", "model.safetensors", "manifest.json"});
  const auto old = make(checkpoints / "step-1", {"notes.txt", "model.safetensors"});
  std::ofstream(checkpoints / fmt::format("step-7.tmp-{}", kNonce)) << "a file";
  (void)sweep(*files, checkpoints);
  (void)prune(*files, checkpoints, {.valid = {2, 3}, .newest = 2}, kNonce);
  EXPECT_TRUE(fs::exists(mine / "model.safetensors"));
  EXPECT_TRUE(fs::exists(other / "notes.txt"));
  EXPECT_FALSE(fs::exists(other / "model.safetensors"));
  EXPECT_FALSE(fs::exists(other / "manifest.json"));
  EXPECT_TRUE(fs::exists(checkpoints / fmt::format("step-7.tmp-{}", kNonce)));
  EXPECT_TRUE(fs::exists(checkpoints / fmt::format("step-1.gone-{}", kNonce) / "notes.txt"));
}

// The inner folder has the name of a file, so unlink() fails.
TEST_F(Removal, WarnsIfItFailsAndTheRunStarts) {
  const auto stays = checkpoints / fmt::format("step-5.tmp-{}", kNonce);
  (void)make(stays / "model.safetensors", {"inside"});
  (void)make(checkpoints / fmt::format("step-6.tmp-{}", kNonce), {"model.safetensors"});
  const TestLog log;
  EXPECT_EQ(train_toy(World::alone(), folder.path(), 2, {.save_every = 1, .log = log.log(0)}), 0);
  EXPECT_TRUE(fs::exists(stays / "model.safetensors" / "inside"));
  EXPECT_FALSE(fs::exists(checkpoints / fmt::format("step-6.tmp-{}", kNonce)));
  EXPECT_NE(log.text().find(fmt::format("warning: cannot remove {}", stays.string())),
            std::string::npos)
      << log.text();
}

TEST_F(Removal, ContinuesWithTheOtherCheckpointsIfOneFails) {
  (void)make(checkpoints / "step-1" / "model.safetensors", {"inside"});
  (void)make(checkpoints / "step-2", {"model.safetensors"});
  (void)prune(*files, checkpoints, {.valid = {3, 4}, .newest = 2}, kNonce);
  EXPECT_FALSE(fs::exists(checkpoints / "step-2"));
  EXPECT_FALSE(fs::exists(checkpoints / fmt::format("step-2.gone-{}", kNonce)));
}

TEST_F(Removal, AmendReplacesWhatAnInterruptedOneHasLeft) {
  const auto step = make(checkpoints / "step-7", {kManifestName, "manifest.json.next"});
  amend(*files, checkpoints, {.step = 7, .kept_as = {"best"}});
  EXPECT_FALSE(fs::exists(step / "manifest.json.next"));
  std::stringstream text;
  text << std::ifstream(step / kManifestName).rdbuf();
  EXPECT_NE(text.str().find("best"), std::string::npos) << text.str();
}

}  // namespace
}  // namespace lockstep
