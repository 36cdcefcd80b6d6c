#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/ckpt/program/checkpoint_paths.h"
#include "cli/ckpt/program/verbs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// A run of one rank with checkpoints of steps 2 and 4.
class CkptVerbs : public ::testing::Test {
 protected:
  CkptVerbs() {
    (void)train_toy(World::alone(), run(), 4,
                    {.save_every = 2, .log = Log({.level = LogLevel::error})});
  }

  [[nodiscard]] std::string run() const { return folder_.path() + "/run"; }
  [[nodiscard]] std::string step(int number) const {
    return run() + "/checkpoints/step-" + std::to_string(number);
  }

  // The output of a verb; sets code_ to its exit code.
  std::string printed(int (*verb)(const Words&), const Words& words) {
    ::testing::internal::CaptureStdout();
    try {
      code_ = verb(words);
    } catch (...) {
      (void)::testing::internal::GetCapturedStdout();
      throw;
    }
    return ::testing::internal::GetCapturedStdout();
  }

  TestFolder folder_;
  int code_ = -1;
};

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST_F(CkptVerbs, InspectListsTheCheckpointsOfARunAndTheTensorsOfOne) {
  const auto list = json::parse(printed(run_inspect, {run(), "--json"}));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["step"], 4);
  EXPECT_EQ(list[1]["step"], 2);
  EXPECT_EQ(list[0]["states"]["toy"], 4);
  const auto table = printed(run_inspect, {run()});
  EXPECT_TRUE(has(table, "periodic")) << table;
  EXPECT_EQ(code_, 0);

  const auto one = json::parse(printed(run_inspect, {step(4), "--json"}));
  EXPECT_EQ(one["tensors"][0]["name"], "weight");
  EXPECT_EQ(one["tensors"][0]["dtype"], "F32");
  EXPECT_EQ(one["tensors"][0]["shape"], json({100}));
  EXPECT_TRUE(has(printed(run_inspect, {step(4)}), "toy.safetensors (472 B"))
      << printed(run_inspect, {step(4)});
}

TEST_F(CkptVerbs, AKeptCheckpointIsFoundByItsName) {
  {
    Toy toy;
    lockstep::Run next(World::alone(), run(), {.log = Log({.level = LogLevel::error})});
    next.track("toy", toy);
    (void)next.resume();
    toy.train();
    (void)next.end_of_step({.keep_as = {"best"}});
    toy.train();
    (void)next.end_of_step();
    next.finish();
  }
  EXPECT_TRUE(has(printed(run_inspect, {run()}), "  best\n")) << printed(run_inspect, {run()});
  EXPECT_EQ(json::parse(printed(run_inspect, {run() + "/best", "--json"}))["step"], 5);
  EXPECT_TRUE(has(printed(run_verify, {run() + "/checkpoints/best"}), "step-5\n1 of 1 valid"));
  EXPECT_TRUE(has(printed(run_diff, {run() + "/best", step(5)}), "bit-identical"));
  const auto file = folder_.path() + "/best.safetensors";
  EXPECT_TRUE(
      has(printed(run_export, {run() + "/best", "-o", file, "--part", "toy"}), "of step 5"));
  try {
    (void)printed(run_inspect, {run() + "/worst"});
    FAIL() << "found what is not there";
  } catch (const UsageError& error) {
    EXPECT_TRUE(has(error.what(), "only these kept checkpoints: best")) << error.what();
  }
}

TEST_F(CkptVerbs, VerifyReadsEveryByte) {
  EXPECT_TRUE(has(printed(run_verify, {run()}), "2 of 2 valid"));
  EXPECT_EQ(code_, 0);
  std::fstream(step(4) + "/toy.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(300)
      .put('x');
  const auto words = printed(run_verify, {run()});
  EXPECT_TRUE(has(words, "1 of 2 valid")) << words;
  EXPECT_TRUE(has(words, "the file was changed after it was written")) << words;
  EXPECT_EQ(code_, 1);
  const auto verdicts = json::parse(printed(run_verify, {run(), "--json"}));
  EXPECT_EQ(verdicts[0]["valid"], false);
  EXPECT_EQ(verdicts[1]["valid"], true);
}

TEST_F(CkptVerbs, DiffNamesWhatDiffersAndByHowMuch) {
  const auto words = printed(run_diff, {step(2), step(4)});
  EXPECT_EQ(code_, 1);
  EXPECT_TRUE(has(words, "toy.safetensors: weight")) << words;
  EXPECT_TRUE(has(words, "99 of 100 elements differ, by at most 198")) << words;
  EXPECT_TRUE(has(words, "state of toy")) << words;
  EXPECT_TRUE(has(printed(run_diff, {step(4), run()}), "bit-identical"));
  EXPECT_EQ(code_, 0);
  EXPECT_EQ(json::parse(printed(run_diff, {step(2), step(4), "--json"}))["differences"].size(), 2U);
}

TEST_F(CkptVerbs, ExportAndImportCopyAPartToANewRun) {
  const auto file = folder_.path() + "/toy.safetensors";
  (void)printed(run_export, {run(), "-o", file, "--part", "toy"});
  EXPECT_EQ(code_, 0);
  EXPECT_THROW((void)printed(run_export, {run(), "-o", file, "--part", "toy"}), SystemError)
      << "a file that is there is not overwritten";
  EXPECT_THROW((void)printed(run_export, {run(), "-o", file + "2"}), UsageError) << "no model";

  const auto other = folder_.path() + "/other";
  (void)printed(run_import, {file, "--to", other, "--part", "toy"});
  EXPECT_EQ(code_, 0);
  EXPECT_THROW((void)printed(run_import, {file, "--to", other, "--part", "toy"}), UsageError);
  EXPECT_THROW((void)printed(run_import, {file, "--to", run(), "--part", "toy"}), UsageError);
  Toy toy;
  Toy untouched;
  lockstep::Run next(World::alone(), other, {.seed = 9, .log = Log({.level = LogLevel::error})});
  next.track("toy", toy);
  next.track("untouched", untouched);
  EXPECT_EQ(next.resume(), 0);
  EXPECT_TRUE(toy.weight.equal(at::arange(100, at::kFloat).mul_(4)));
  EXPECT_TRUE(untouched.is_after(0));
}

TEST_F(CkptVerbs, ImportRefusesAFolderThatARunIsUsing) {
  const auto file = folder_.path() + "/toy.safetensors";
  (void)printed(run_export, {run(), "-o", file, "--part", "toy"});
  const auto other = folder_.path() + "/other";
  Toy toy;
  lockstep::Run next(World::alone(), other, {.log = Log({.level = LogLevel::error})});
  next.track("toy", toy);
  (void)next.resume();
  try {
    (void)printed(run_import, {file, "--to", other, "--part", "toy"});
    FAIL() << "imported";
  } catch (const UsageError& error) {
    EXPECT_TRUE(has(error.what(), "a run is using")) << error.what();
  }
}

// The run would resume from step 2; the verb states the fault of step 4.
TEST_F(CkptVerbs, VerifyRefusesAPipeInPlaceOfAFile) {
  const auto path = step(4) + "/toy.safetensors";
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto words = printed(run_verify, {run()});
  EXPECT_TRUE(has(words, path + " is not a regular file")) << words;
  EXPECT_TRUE(has(words, "1 of 2 valid")) << words;
}

TEST_F(CkptVerbs, PathsWithoutACheckpointAreNamed) {
  const auto refusal = [&](const Words& words) -> std::string {
    try {
      (void)printed(run_inspect, words);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_TRUE(has(refusal({"/nowhere"}), "the folder /nowhere does not exist"));
  EXPECT_TRUE(has(refusal({folder_.path()}), "there is no step-<n> in"));
  EXPECT_TRUE(has(refusal({run(), "--jsom"}), "did you mean --json?"));
  EXPECT_EQ(size_words(999), "999 B");
  EXPECT_EQ(size_words(1000), "1.0 KB");
  EXPECT_EQ(size_words(999'960), "1.0 MB");
  EXPECT_EQ(size_words(200'000'000), "200.0 MB");
}

}  // namespace
}  // namespace lockstep::cli
