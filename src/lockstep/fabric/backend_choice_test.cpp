#include "lockstep/fabric/backend_choice.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(ChooseBackend, SelectsSharedMemoryOnOneHostAndStatesTheReason) {
  const auto choice = choose_backend({{0, 1, 2}, {0, 0, 0}, {"a", "a", "a"}});
  EXPECT_EQ(choice.kind, BackendKind::shm);
  EXPECT_EQ(choice.reason, "all 3 ranks are on one host");
  EXPECT_EQ(choose_backend({{7}, {2}, {"b"}}).reason, "the group has one rank");
  EXPECT_EQ(choose_backend({{0, 1}, {0, 0}, {"a", "a"}}, {.backend = BackendKind::shm}).reason,
            "requested");
}

TEST(ChooseBackend, NamesTheHostsThatNoBackendConnects) {
  for (const BackendOptions& options :
       {BackendOptions{}, BackendOptions{.backend = BackendKind::shm}}) {
    try {
      (void)choose_backend({{0, 1, 4}, {0, 0, 1}, {"10.0.0.1", "10.0.0.1", "10.0.0.2"}}, options);
      FAIL() << "two hosts";
    } catch (const UsageError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("the 3 ranks are on 2 hosts"), std::string::npos) << text;
      EXPECT_NE(text.find("at 10.0.0.1"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 4 at 10.0.0.2"), std::string::npos) << text;
    }
  }
}

// A subgroup of a group on several hosts can be on one of them.
TEST(ChooseBackend, DependsOnlyOnTheRanksOfTheGroup) {
  EXPECT_EQ(choose_backend({{4, 5}, {1, 1}, {"10.0.0.2", "10.0.0.2"}}).kind, BackendKind::shm);
}

}  // namespace
}  // namespace lockstep
