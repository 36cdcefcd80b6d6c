// What a lost connection is called.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>

#include "lockstep/tcp/loss_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

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

TEST(Loss, APeerHasEndedIfAllItsConnectionsEndAtOnce) {
  EXPECT_EQ(ends_in_words(3, 3, 0ms), "");
  EXPECT_EQ(ends_in_words(1, 1, 0ms), "");
  EXPECT_EQ(ends_in_words(2, 3, 0ms), std::nullopt) << "the third one may follow";
  EXPECT_EQ(ends_in_words(3, 3, kEndingTime - 1ms), "");
}

TEST(Loss, AConnectionThatEndsWithoutTheOthersWasReset) {
  EXPECT_EQ(ends_in_words(1, 3, 2 * kEndingTime - 1ms), std::nullopt);
  for (const auto& why : {ends_in_words(1, 3, 2 * kEndingTime), ends_in_words(3, 3, kEndingTime)}) {
    EXPECT_NE(why.value_or("").find("a connection to it was reset"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
