#include "lockstep/trace/jsonl_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/trace/counter.h"
#include "lockstep/trace/span.h"

namespace lockstep {
namespace {

class JsonlWriterTest : public ::testing::Test {
 protected:
  ~JsonlWriterTest() override { std::remove(path_.c_str()); }

  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::ifstream file(path_);
    std::vector<nlohmann::json> result;
    for (std::string line; std::getline(file, line);) result.push_back(nlohmann::json::parse(line));
    return result;
  }

  const std::string path_ = ::testing::TempDir() + "trace_" + std::to_string(::getpid()) + ".jsonl";
};

TEST_F(JsonlWriterTest, TheFirstLineHoldsBothClocks) {
  const JsonlWriter writer(path_);
  const auto first = lines().at(0);
  EXPECT_EQ(first["format"], "lockstep-trace");
  EXPECT_EQ(first["version"], 1);
  EXPECT_EQ(first["pid"], ::getpid());
  EXPECT_GT(first["steady_ns"], 0);
  EXPECT_GT(first["wall_ns"], 1'700'000'000'000'000'000);  // after 2023: a real wall clock
}

TEST_F(JsonlWriterTest, ASpanCoversItsScope) {
  TraceClock::time_point before;
  TraceClock::time_point after;
  {
    JsonlWriter writer(path_);
    before = TraceClock::now();
    { const Span span(writer, "backward"); }
    after = TraceClock::now();
  }
  const auto span = lines().at(1);
  EXPECT_EQ(span["span"], "backward");
  EXPECT_EQ(span["thread"], ::gettid());
  EXPECT_GE(span["begin_ns"].get<long long>(), before.time_since_epoch().count());
  EXPECT_LE(span["begin_ns"].get<long long>() + span["duration_ns"].get<long long>(),
            after.time_since_epoch().count());
}

TEST_F(JsonlWriterTest, ACounterRecordsItsTotals) {
  JsonlWriter writer(path_);
  Counter samples(writer, "samples");
  samples.add(32);
  samples.add(0.5);
  writer.flush();
  EXPECT_EQ(lines().at(1)["value"], 32);
  EXPECT_EQ(lines().at(2)["value"], 32.5);
  EXPECT_EQ(samples.total(), 32.5);
}

TEST_F(JsonlWriterTest, AnyNameAndAnyNumberStayValidJson) {
  JsonlWriter writer(path_);
  Counter odd(writer, "quote \" slash \\ break \n bad utf-8 \xff");
  odd.add(std::numeric_limits<double>::infinity());
  writer.flush();
  EXPECT_TRUE(lines().at(1)["value"].is_null());
}

TEST_F(JsonlWriterTest, EventsOfManyThreadsAllArriveWhole) {
  constexpr int events = 2'000;
  {
    JsonlWriter writer(path_);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&writer] {
        for (int i = 0; i < events; ++i) const Span span(writer, "step");
      });
    }
  }
  EXPECT_EQ(lines().size(), 1u + 4 * events);
}

TEST_F(JsonlWriterTest, AFullDiskIsReported) {
  EXPECT_THROW(JsonlWriter("/dev/full"), SystemError);
}

TEST_F(JsonlWriterTest, AMissingFolderIsNamed) {
  try {
    const JsonlWriter writer("/nowhere/trace.jsonl");
    FAIL() << "wrote into a missing folder";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_NE(std::string(error.what()).find("/nowhere/trace.jsonl"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
