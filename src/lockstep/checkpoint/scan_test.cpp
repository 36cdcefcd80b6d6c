#include "lockstep/checkpoint/scan.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <future>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/manifest.h"

namespace lockstep {
namespace {

using Kind = Agreement::Kind;

std::string refusal(const std::vector<Proposal>& proposals) {
  try {
    (void)decide_common(proposals, "runs/mine");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "agreed";
}

TEST(Agreement, TakesTheNewestThatEveryRankHas) {
  EXPECT_EQ(decide_common(std::vector<Proposal>{{-1, 0, 0}, {-1, 0, 0}}, "").kind, Kind::fresh);
  const auto same = decide_common(std::vector<Proposal>{{300, 7, 3}, {300, 7, 2}}, "");
  EXPECT_EQ(same.kind, Kind::resume);
  EXPECT_EQ(same.step, 300);
  const auto lower =
      decide_common(std::vector<Proposal>{{300, 7, 3}, {200, 6, 2}, {300, 7, 3}}, "");
  EXPECT_EQ(lower.kind, Kind::propose_again);
  EXPECT_EQ(lower.step, 200);
}

TEST(Agreement, NeverStartsFromStepZeroOverInvalidCheckpoints) {
  EXPECT_EQ(
      refusal({{300, 7, 3}, {-1, 0, 1}}),
      "runs/mine has checkpoints, but none is valid on every rank; rank 0 sees 3 checkpoints, "
      "step 300 with manifest 0000000000000007; rank 1 sees 1 checkpoint, none of them valid; "
      "`lockstep ckpt verify` prints the error of each checkpoint; to start from step 0, use "
      "another folder");
  EXPECT_NE(refusal({{-1, 0, 1}, {-1, 0, 0}}).find("none is valid"), std::string::npos);
  EXPECT_NE(refusal({{300, 7, 1}, {300, 8, 1}}).find("does not contain the same checkpoint"),
            std::string::npos);
}

TEST(Scan, AManifestThatIsAPipeIsRefusedWithoutWaiting) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "scan_test_pipe";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "step-1");
  const auto pipe = (folder / "step-1" / kManifestName).string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto refused = std::async(std::launch::async, [&] {
    EXPECT_THROW((void)verify_step(*local_file_system(), folder, 1), UsageError);
    EXPECT_TRUE(kept_steps(*local_file_system(), folder).empty());
  });
  const bool at_once = refused.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(at_once);
  while (refused.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    (void)!::system(("timeout 1 sh -c ': > " + pipe + "'").c_str());  // a writer lets it continue
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
