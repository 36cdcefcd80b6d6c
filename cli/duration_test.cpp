#include "cli/duration.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using std::chrono::milliseconds;

TEST(Duration, TakesTheUnitsPeopleType) {
  EXPECT_EQ(parse_duration("--grace", "500ms"), milliseconds(500));
  EXPECT_EQ(parse_duration("--grace", "30s"), milliseconds(30'000));
  EXPECT_EQ(parse_duration("--grace", "1.5min"), milliseconds(90'000));
  EXPECT_EQ(parse_duration("--grace", "6h"), milliseconds(21'600'000));
}

TEST(Duration, TakesANumberAloneForSeconds) {
  EXPECT_EQ(parse_duration("--grace", "5"), milliseconds(5'000));
  EXPECT_EQ(parse_duration("--grace", "0"), milliseconds(0));
}

TEST(Duration, RefusesAnythingElseAndNamesTheOption) {
  for (const char* text : {"", "s", "-1s", "5 s", "5d", "1e300h", "nan", "inf", "30ss"}) {
    try {
      (void)parse_duration("--grace", text);
      ADD_FAILURE() << "took \"" << text << "\" for a time";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("--grace"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep::cli
