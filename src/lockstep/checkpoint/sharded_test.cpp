// Tracked objects of which every rank holds a part: the files of a checkpoint are those of whole
// tensors, byte for byte, and any number of ranks with any division resumes from them.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/staging.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_sharded_toy_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr Division kDivisions[] = {Division::whole, Division::blocks, Division::elements,
                                   Division::last};

// Resumes and trains `steps` steps, of which the last is saved. Returns the step it resumed from.
std::int64_t train(const std::string& folder, int ranks, Division division, int steps) {
  std::atomic<std::int64_t> from = -1;
  with_worlds(ranks, [&](const World& world) {
    ShardedToy toy(division, world.rank(), ranks);
    ToyModule net(world.rank());
    const TestLog log;
    Run run(world, folder, {.log = log.log(world.rank())});
    run.track("net", net);
    run.track("toy", toy);
    const auto step = run.resume();
    from = step;
    if (step > 0) {
      EXPECT_TRUE(toy.is_after(step)) << to_string(division) << " on rank " << world.rank();
      EXPECT_TRUE(net.is_after(step)) << to_string(division) << " on rank " << world.rank();
    }
    for (int i = 1; i <= steps; ++i) {
      toy.set(step + i);
      net.set(step + i);
      (void)run.end_of_step();
    }
    run.finish();
  });
  return from;
}

// The bytes of the files of a checkpoint, by name.
std::map<std::string, std::string> files_of(const std::string& folder, std::int64_t step) {
  std::map<std::string, std::string> files;
  for (const auto& entry :
       fs::directory_iterator(folder + "/checkpoints/step-" + std::to_string(step))) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return files;
}

TEST(Sharded, TheFilesAreThoseOfWholeTensorsForEveryDivisionAndNumberOfRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    std::map<std::string, std::string> expected;
    for (const auto division : kDivisions) {
      const TestFolder folder;
      EXPECT_EQ(train(folder.path(), ranks, division, 2), 0);
      auto files = files_of(folder.path(), 2);
      EXPECT_EQ(files.size(), 3U + static_cast<std::size_t>(ranks))
          << "net, toy, manifest and a file per rank";
      if (division == Division::whole)
        expected = std::move(files);
      else
        EXPECT_EQ(files == expected, true) << to_string(division) << ", " << ranks << " ranks";
    }
  }
}

TEST(Sharded, AnyNumberOfRanksResumesFromTheFilesOfAnyOther) {
  const TestFolder sharded;
  const TestFolder whole;
  (void)train(sharded.path(), 4, Division::blocks, 2);
  (void)train(whole.path(), 3, Division::whole, 2);
  const TestFolder uninterrupted;
  (void)train(uninterrupted.path(), 1, Division::whole, 3);
  const auto expected = files_of(uninterrupted.path(), 3);
  for (const auto* saved : {&sharded, &whole}) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const auto division : kDivisions) {
        const TestFolder copy;
        fs::copy(saved->path(), copy.path(), fs::copy_options::recursive);
        EXPECT_EQ(train(copy.path(), ranks, division, 1), 2);
        const auto files = files_of(copy.path(), 3);
        for (const auto* name : {"net.safetensors", "toy.safetensors"}) {
          EXPECT_EQ(files.at(name) == expected.at(name), true)
              << name << ", " << to_string(division) << ", " << ranks << " ranks";
        }
      }
    }
  }
}

// Each rank stages about 1/W of the bytes of every file.
TEST(Sharded, EachRankStagesItsPartOfTheBytes) {
  constexpr int kRanks = 4;
  const auto equal = at::arange(1'000'000, at::kFloat);
  const auto strided = at::arange(600'000, at::kFloat).view({600, 1000}).t();
  std::uint64_t sum = 0;
  std::uint64_t file_bytes = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const ShardedTensor sharded{
        .name = "s", .sizes = {400'002}, .pieces = {{100'000 * rank, at::zeros({100'000})}}};
    const std::vector<FileToStage> files{{.name = "x",
                                          .tensors = {{"e", equal}, {"t", strided}},
                                          .sharded = {sharded},
                                          .rank = rank,
                                          .num_ranks = kRanks}};
    Staging staging;
    std::uint64_t bytes = 0;
    for (const auto& file : staging.stage(files)) {
      file_bytes = file.bytes;
      for (const auto& extent : file.extents) bytes += extent.bytes.size();
    }
    EXPECT_NEAR(static_cast<double>(bytes), 2'000'000, 3 * 4096);
    EXPECT_LT(staging.capacity(), 2'000'000U + 4 * 4096);
    sum += bytes;
  }
  EXPECT_EQ(sum, file_bytes - 8) << "two elements of s are on no rank";
}

// The first error of each rank when the pieces of rank 1 are changed by `change`.
std::vector<std::string> errors_after(const std::function<void(ShardedTensors&)>& change) {
  const TestFolder folder;
  std::vector<std::string> words(2);
  with_worlds(2, [&](const World& world) {
    ShardedToy toy(Division::blocks, world.rank(), 2);
    const TestLog log;
    Run run(world, folder.path(), {.log = log.log(world.rank())});
    run.track("toy", toy);
    (void)run.resume();
    toy.train();
    if (world.rank() == 1) change(toy.held());
    try {
      (void)run.end_of_step();
      run.finish();
    } catch (const Error& error) {
      words[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_FALSE(fs::exists(folder.path() + "/checkpoints/step-1"));
  return words;
}

TEST(Sharded, ElementsOnNoRankOrOnTwoEndTheSaveOnAllRanks) {
  const auto missing = [](ShardedTensors& held) { held.front().pieces.clear(); };
  const auto twice = [](ShardedTensors& held) {
    auto& piece = held.front().pieces.front();
    piece = {piece.begin - 1, at::zeros({piece.values.numel() + 1})};
  };
  for (const auto& change : {std::function<void(ShardedTensors&)>(missing), {twice}}) {
    for (const auto& words : errors_after(change)) {
      EXPECT_NE(words.find("of toy.safetensors exactly once"), std::string::npos) << words;
    }
  }
}

TEST(Sharded, ATensorThatOnlyOneRankListsEndsTheSave) {
  const auto errors = errors_after([](ShardedTensors& held) { held.pop_back(); });
  for (const auto& words : errors) {
    EXPECT_NE(words.find("the same tensors, dtypes and sizes on every rank"), std::string::npos)
        << words;
  }
}

TEST(Sharded, InvalidPiecesAreNamed) {
  const auto stage = [](std::vector<ShardedTensor::Piece> pieces) {
    Staging staging;
    const std::vector<FileToStage> files{
        {.name = "x",
         .tensors = {},
         .sharded = {{.name = "momentum", .sizes = {3, 4}, .pieces = std::move(pieces)}}}};
    try {
      (void)staging.stage(files);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(stage({{0, at::zeros({5})}, {5, at::zeros({7})}}), "");
  const auto begins = [](const std::string& text) {
    return text.starts_with("sharded_tensors() has an invalid piece of \"momentum\": ");
  };
  EXPECT_TRUE(begins(stage({{0, at::zeros({5})}, {4, at::zeros({8})}})));
  EXPECT_TRUE(begins(stage({{8, at::zeros({5})}})));
  EXPECT_TRUE(begins(stage({{-1, at::zeros({5})}})));
  EXPECT_TRUE(begins(stage({{0, at::zeros({12}, at::kLong)}})));
  EXPECT_TRUE(begins(stage({{0, at::zeros({3, 4})}})));
  EXPECT_TRUE(begins(stage({{0, at::Tensor()}})));
}

}  // namespace
}  // namespace lockstep
