#include "lockstep/trace/run_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class RunPagesTest : public ::testing::Test {
 protected:
  RunPagesTest() {
    std::string name = fs::temp_directory_path() / "lockstep-pages-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~RunPagesTest() override { fs::remove_all(folder_); }

  fs::path folder_;
};

TEST_F(RunPagesTest, AReaderOfTheLinkSeesWhatARankWrote) {
  RunPages pages(3, "./train --lr 1");
  pages.begin_round(2);
  pages.set_host(1, 0, "node7");
  pages.set_standing(1, RankStanding::running);
  pages.set_memory(1, 123456);
  const std::string path = folder_ / RunPages::kFileName;
  pages.link(path);
  auto page = pages.page(1);
  page.words().pid.store(4711);
  page.step(812);
  page.enter(StepPart::backward, 4);
  const RankPage::CallName name = "gradients 4";
  page.begin_call(99, 7, 3, name, ticks());

  const auto run = RunPages::read(path);
  EXPECT_EQ(run.command, "./train --lr 1");
  EXPECT_EQ(run.round, 2);
  EXPECT_EQ(run.launcher, ::getpid());
  EXPECT_FALSE(run.has_ended);
  ASSERT_EQ(run.ranks.size(), 3u);
  const auto& state = run.ranks[1];
  EXPECT_EQ(state.rank, 1);
  EXPECT_EQ(state.host, "node7");
  EXPECT_EQ(state.standing, RankStanding::running);
  EXPECT_EQ(state.memory_bytes, 123456u);
  EXPECT_EQ(state.pid, 4711);
  EXPECT_EQ(state.step, 812);
  EXPECT_EQ(state.part, StepPart::backward);
  EXPECT_EQ(state.bucket, 4);
  ASSERT_TRUE(state.call);
  EXPECT_EQ(state.call->kind, 3);
  EXPECT_EQ(state.call->number, 7u);
  EXPECT_EQ(state.call->name, "gradients 4");
  EXPECT_FALSE(state.call->has_ended);
  EXPECT_EQ(where_is(state), "step 812, backward, bucket 4");
  EXPECT_EQ(where_is(run.ranks[0]), "");

  page.end_call(99, 6);  // another call
  EXPECT_FALSE(RunPages::read(path).ranks[1].call->has_ended);
  page.end_call(99, 7);
  EXPECT_TRUE(RunPages::read(path).ranks[1].call->has_ended);
}

TEST_F(RunPagesTest, APartWithoutABucketNamesTheCallThatHasNotEnded) {
  RankState state{.pid = 1, .step = 3, .part = StepPart::evaluation};
  EXPECT_EQ(where_is(state), "step 3, evaluation");
  state.call = RankCall{.name = "metrics"};
  EXPECT_EQ(where_is(state), "step 3, evaluation, call \"metrics\"");
  state.call->has_ended = true;
  EXPECT_EQ(where_is(state), "step 3, evaluation");
  state.step.reset();
  state.part = StepPart::other;
  EXPECT_EQ(where_is(state), "before its first step");
}

TEST_F(RunPagesTest, APageSurvivesTheSigkillOfItsRank) {
  const RunPages pages(2, "x");
  const pid_t child = ::fork();
  if (child == 0) {
    auto page = RunPages(FileDescriptor(::dup(pages.descriptor()))).page(1);
    page.words().pid.store(static_cast<std::uint64_t>(::getpid()));
    page.step(41);
    page.step(42);
    page.enter(StepPart::exposed, 0);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(where_is(pages.state_of(1)), "step 42, waiting for gradients, bucket 0");
  EXPECT_EQ(pages.state_of(0).pid, 0);
}

TEST_F(RunPagesTest, TheFileOfTheLastStateKeepsItsAges) {
  const std::string path = folder_ / "pages";
  {
    RunPages pages(1, "x");
    pages.link(path);
    auto page = pages.page(0);
    page.words().pid.store(1);
    page.step(5);
    pages.set_standing(0, RankStanding::ended, 9);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pages.leave(path);
  }
  EXPECT_FALSE(fs::is_symlink(path));
  const auto run = RunPages::read(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(run.has_ended);
  EXPECT_EQ(run.ranks[0].standing, RankStanding::ended);
  EXPECT_EQ(run.ranks[0].status, 9);
  EXPECT_GT(run.ranks[0].age, std::chrono::milliseconds(80));
  EXPECT_EQ(RunPages::read(path), run);  // the time since then does not count
}

TEST_F(RunPagesTest, WithoutTheLauncherTheLinkLeadsNowhere) {
  const std::string path = folder_ / "pages";
  RunPages(1, "x").link(path);
  try {
    (void)RunPages::read(path);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
  }
}

TEST_F(RunPagesTest, OtherFilesAreRefused) {
  const std::string path = folder_ / "pages";
  std::ofstream(path) << std::string(8192, 'x');
  EXPECT_THROW((void)RunPages::read(path), UsageError);
  std::ofstream(path) << "short";
  EXPECT_THROW((void)RunPages::read(path), UsageError);
  EXPECT_THROW((void)RunPages::read(folder_.string()), UsageError);
}

TEST_F(RunPagesTest, ACopyKeepsTheAgesOfAnotherHost) {
  RunPages there(4, "x");
  there.set_host(2, 1, "h1");
  there.set_standing(2, RankStanding::stopped);
  auto page = there.page(2);
  page.words().pid.store(77);
  page.step(9);
  page.enter(StepPart::forward);
  // A host that booted an hour later: all its times are smaller.
  constexpr std::int64_t hour = 3'600'000'000'000;
  auto copy = there.copy_of(2, 1);
  const auto shift = [&copy](std::size_t offset) {
    std::int64_t time = 0;
    std::memcpy(&time, copy.data() + offset, sizeof time);
    time += hour;
    std::memcpy(copy.data() + offset, &time, sizeof time);
  };
  shift(0);
  shift(8 + offsetof(RankPage::Words, since));
  shift(8 + offsetof(RankPage::Words, step_since));

  RunPages here(4, "x");
  here.mirror(2, copy);
  const auto state = here.state_of(2);
  EXPECT_EQ(state.host, "h1");
  EXPECT_EQ(state.node, 1);
  EXPECT_EQ(state.standing, RankStanding::stopped);
  EXPECT_EQ(state.step, 9);
  EXPECT_LT(state.age, std::chrono::minutes(1));
  EXPECT_LT(state.step_age, std::chrono::minutes(1));
  EXPECT_THROW(here.mirror(4, copy), UsageError);
  EXPECT_THROW(here.mirror(0, "1234567"), UsageError);
}

TEST_F(RunPagesTest, ANewRoundBeginsWithEmptyPages) {
  RunPages pages(1, "x");
  pages.page(0).step(4);
  pages.begin_round(1);
  EXPECT_FALSE(pages.state_of(0).step);
  EXPECT_EQ(pages.state().round, 1);
}

// A reader must never combine two calls: the number, the kind and every letter of the name agree.
TEST_F(RunPagesTest, AReaderNeverSeesHalfACall) {
  const RunPages pages(1, "x");
  std::jthread writer([page = pages.page(0)](const std::stop_token& stop) mutable {
    for (std::uint64_t number = 1; !stop.stop_requested(); ++number) {
      RankPage::CallName name = {};
      std::memset(name, static_cast<int>('a' + number % 26), RankPage::kMaxName);
      page.begin_call(5, number, static_cast<int>(number % 100), name, ticks());
    }
  });
  int seen = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < end) {
    const auto call = pages.state_of(0).call;
    if (!call) continue;
    ++seen;
    ASSERT_EQ(call->kind, static_cast<int>(call->number % 100));
    ASSERT_EQ(call->name,
              std::string(RankPage::kMaxName, static_cast<char>('a' + call->number % 26)));
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace lockstep
