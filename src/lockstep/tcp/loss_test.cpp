// What a lost connection is called.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "lockstep/tcp/loss_internal.h"

namespace lockstep {
namespace {

constexpr const char* kProcess = "its machine answers, its process does not";
constexpr const char* kMachine = "its machine does not answer";

TEST(Loss, ATimeoutOfTheKernelIsDescribedByWhatWasSeenBefore) {
  EXPECT_EQ(silence_in_words(true), kProcess);
  EXPECT_EQ(silence_in_words(false), kMachine);
  EXPECT_EQ(error_in_words(ETIMEDOUT, true), kProcess);
  EXPECT_EQ(error_in_words(ETIMEDOUT, false), kMachine);
}

TEST(Loss, AMachineThatCannotBeReachedDoesNotAnswerWhateverWasSeenBefore) {
  for (const bool acknowledges : {true, false}) {
    EXPECT_EQ(error_in_words(EHOSTUNREACH, acknowledges),
              std::string(kMachine) + ": No route to host");
    EXPECT_EQ(error_in_words(ENETUNREACH, acknowledges),
              std::string(kMachine) + ": Network is unreachable");
  }
}

TEST(Loss, AnyOtherErrorIsGivenInTheWordsOfTheKernel) {
  EXPECT_EQ(error_in_words(EBADMSG, true), "the connection to it was lost: Bad message");
}

}  // namespace
}  // namespace lockstep
