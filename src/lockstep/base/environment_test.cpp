#include "lockstep/base/environment.h"

#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Environment, OfProcessSeesWhatTheProcessWasGiven) {
  EXPECT_TRUE(Environment::of_process().find("PATH").has_value());
}

TEST(Environment, AnEmptyVariableCountsAsNotSet) {
  const Environment env{{"EMPTY", ""}};
  EXPECT_EQ(env.find("EMPTY"), std::nullopt);
  EXPECT_EQ(env.find_integer("EMPTY"), std::nullopt);
  EXPECT_EQ(env.find("EMPTY").value_or("python3"), "python3");
}

TEST(Environment, DistinguishesUnsetFromEmptyWhereThatHasAMeaning) {
  const Environment env{{"EMPTY", ""}};
  EXPECT_EQ(env.find_even_empty("EMPTY"), "");
  EXPECT_EQ(env.find_even_empty("UNSET"), std::nullopt);
}

TEST(Environment, PassesEmptyVariablesOn) {
  EXPECT_EQ(Environment({{"EMPTY", ""}}).lines(), std::vector<std::string>{"EMPTY="});
}

TEST(Environment, ReadsIntegersUpToTheLimitsOf64Bits) {
  const Environment env{{"A", "0"}, {"B", "-9223372036854775808"}, {"C", "9223372036854775807"}};
  EXPECT_EQ(env.find_integer("A"), 0);
  EXPECT_EQ(env.find_integer("B"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(env.find_integer("C"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(env.find_integer("UNSET"), std::nullopt);
}

TEST(Environment, RefusesAValueThatIsNoIntegerAndNamesIt) {
  for (const char* text : {" 1", "1 ", "0x10", "1e3", "3.0", "9223372036854775808", "+1"}) {
    const Environment env{{"WORLD_SIZE", text}};
    try {
      (void)env.find_integer("WORLD_SIZE");
      ADD_FAILURE() << "accepted \"" << text << "\" as a number";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("WORLD_SIZE"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos);
    }
  }
}

TEST(Environment, FlagsAreOneOfTheUsualWords) {
  const Environment env{{"A", "1"}, {"B", "off"}, {"C", ""}, {"D", "maybe"}};
  EXPECT_TRUE(env.flag("A"));
  EXPECT_FALSE(env.flag("B"));
  EXPECT_FALSE(env.flag("C"));
  EXPECT_FALSE(env.flag("UNSET"));
  EXPECT_THROW((void)env.flag("D"), UsageError);
}

TEST(Environment, LinesAreReadyForExec) {
  Environment env{{"B", "2"}, {"GONE", "x"}};
  env.set("A", "1=1");
  env.remove("GONE");
  EXPECT_EQ(env.lines(), (std::vector<std::string>{"A=1=1", "B=2"}));
}

}  // namespace
}  // namespace lockstep
