#include "lockstep/fabric/flight_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

CallDescriptor named(const std::string& name) {
  return descriptor_of({.kind = Collective::all_reduce, .count = 4, .name = name});
}

TEST(FlightRecorder, HoldsRankCauseAndCalls) {
  FlightRecorder record;
  record.enter(1, named("first"), ticks());
  record.complete(1, ticks());
  record.enter(2, named("second"), ticks());
  const auto json = nlohmann::json::parse(record.to_json(3, "world", "rank 1 is gone"));
  EXPECT_EQ(json["format"], "lockstep-flight-record");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["group"], "world");
  EXPECT_EQ(json["cause"], "rank 1 is gone");
  ASSERT_EQ(json["calls"].size(), 2U);
  EXPECT_EQ(json["calls"][0]["call"], "all_reduce(sum, 4 × uint8, \"first\")");
  EXPECT_EQ(json["calls"][0]["state"], "complete");
  EXPECT_GE(json["calls"][0]["took_ms"], 0.0);
  EXPECT_EQ(json["calls"][1]["number"], 2);
  EXPECT_EQ(json["calls"][1]["state"], "entered");
  EXPECT_FALSE(json["calls"][1].contains("took_ms"));
}

TEST(FlightRecorder, TimesAreMilliseconds) {
  FlightRecorder record;
  const auto begin = std::chrono::steady_clock::now();
  record.enter(1, named("slow"), ticks());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  record.complete(1, ticks());
  const auto json = nlohmann::json::parse(record.to_json(0, "world", ""));
  const std::chrono::duration<double, std::milli> all = std::chrono::steady_clock::now() - begin;
  // The rates of both clocks differ by up to 500 parts per million.
  EXPECT_GE(json["calls"][0]["took_ms"], 19.9);
  EXPECT_LE(json["calls"][0]["took_ms"], 1.001 * all.count());
  EXPECT_LE(json["calls"][0]["took_ms"], json["calls"][0]["entered_ms_ago"]);
}

TEST(FlightRecorder, KeepsTheLast64InOrder) {
  FlightRecorder record;
  for (std::uint64_t number = 1; number <= 100; ++number) {
    record.enter(number, named("x"), ticks());
    record.complete(number, ticks());
  }
  const auto json = nlohmann::json::parse(record.to_json(0, "world", ""));
  ASSERT_EQ(json["calls"].size(), FlightRecorder::kCalls);
  for (std::size_t i = 0; i < FlightRecorder::kCalls; ++i)
    EXPECT_EQ(json["calls"][i]["number"], 37 + i);
}

TEST(FlightRecorder, TheCompletionOfAnOverwrittenCallChangesNoOtherCall) {
  FlightRecorder record;
  record.enter(1, named("old"), ticks());
  record.enter(1 + FlightRecorder::kCalls, named("new"), ticks());
  record.complete(1, ticks());
  const auto json = nlohmann::json::parse(record.to_json(0, "world", ""));
  ASSERT_EQ(json["calls"].size(), 1U);
  EXPECT_EQ(json["calls"][0]["state"], "entered");
}

TEST(FlightRecorder, ANameThatIsNotUtf8GivesValidJson) {
  FlightRecorder record;
  record.enter(1, named("\xFF\xFE"), ticks());
  const auto json = nlohmann::json::parse(record.to_json(0, "world", "\xC3"));
  EXPECT_EQ(json["calls"].size(), 1U);
}

}  // namespace
}  // namespace lockstep
