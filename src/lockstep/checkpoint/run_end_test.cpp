// The end of a run and its warning.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

namespace lockstep {
namespace {

enum class End { none, finish, exception };

// The logs of rank 0 and of the others for a run of `steps` steps, saved every 50, that ends by
// `end`.
std::pair<std::string, std::string> logged(std::int64_t steps, End end) {
  const TestFolder folder;
  const TestLog first;
  const TestLog others;
  with_worlds(2, [&](const World& world) {
    try {
      Toy toy;
      lockstep::Run run(
          world, folder.path(),
          {.save_every = 50, .log = (world.rank() == 0 ? first : others).log(world.rank())});
      run.track("toy", toy);
      (void)run.resume();
      while (run.step() < steps) (void)run.end_of_step();
      if (end == End::finish) run.finish();
      if (end == End::exception) throw UsageError("thrown by the program");
    } catch (const UsageError&) {
    }
  });
  return {first.text(), others.text()};
}

bool warns(const std::string& text) { return text.find("without finish()") != std::string::npos; }

TEST(RunEnd, WithoutFinishWarnsOfUnsavedStepsOnceForAllRanks) {
  const auto [first, others] = logged(120, End::none);
  EXPECT_NE(first.find("rank 0 | warning: the run ended at step 120 without finish(): the newest "
                       "checkpoint is of step 100"),
            std::string::npos)
      << first;
  EXPECT_FALSE(warns(others)) << others;
  const auto early = logged(20, End::none).first;
  EXPECT_NE(early.find("ended at step 20 without finish(): there is no checkpoint"),
            std::string::npos)
      << early;
}

TEST(RunEnd, WarnsOfNothingIfAllStepsAreSavedOrAnExceptionEndsTheRun) {
  EXPECT_FALSE(warns(logged(120, End::finish).first));
  EXPECT_FALSE(warns(logged(100, End::none).first)) << "the last step is saved";
  EXPECT_FALSE(warns(logged(0, End::none).first));
  EXPECT_FALSE(warns(logged(120, End::exception).first));
}

}  // namespace
}  // namespace lockstep
