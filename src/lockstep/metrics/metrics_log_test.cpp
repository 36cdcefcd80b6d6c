#include "lockstep/metrics/metrics_log.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/metrics/test_folder_internal.h"

namespace lockstep {
namespace {

MetricRow row(std::int64_t step, double loss) {
  return {.step = step, .kind = MetricKind::train, .metrics = {{"loss", loss}}};
}

class MetricsLogTest : public FolderTest {
 protected:
  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> found;
    std::ifstream file(jsonl_);
    for (std::string line; std::getline(file, line);) found.push_back(nlohmann::json::parse(line));
    return found;
  }
  [[nodiscard]] std::size_t num_event_files() const {
    const std::filesystem::directory_iterator files(path("tensorboard"));
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }

  const std::string jsonl_ = path("metrics.jsonl");
};

TEST_F(MetricsLogTest, ARowIsInEveryFileWhenWriteReturns) {
  MetricsLog log(folder_);
  log.write({.step = 10,
             .kind = MetricKind::train,
             .metrics = {{"loss", 5.25}, {"tokens", 20480}, {"note", "warm"}}});
  log.write({.step = 10, .kind = MetricKind::eval, .metrics = {{"loss", 5.5}}});
  log.write({.step = 10, .kind = MetricKind::event, .metrics = {{"checkpoint", "step-10"}}});
  const auto found = lines();
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0]["kind"], "start");
  EXPECT_EQ(found[0]["format"], "lockstep-metrics");
  EXPECT_TRUE(found[0]["after"].is_null());
  EXPECT_EQ(found[1]["kind"], "train");
  EXPECT_EQ(found[1]["step"], 10);
  EXPECT_EQ(found[1]["loss"], 5.25);
  EXPECT_EQ(found[1]["tokens"], 20480);
  EXPECT_GT(found[1]["time"], 1.7e9);  // after 2023: a real wall clock
  EXPECT_EQ(found[2]["kind"], "eval");
  EXPECT_EQ(found[3]["checkpoint"], "step-10");
  EXPECT_EQ(contents(path("metrics.csv")), "step,loss,tokens\n10,5.25,20480\n");
  EXPECT_EQ(contents(path("metrics_eval.csv")), "step,loss\n10,5.5\n");
  EXPECT_EQ(num_event_files(), 1u);
}

TEST_F(MetricsLogTest, ValuesAreWrittenInTheirOrder) {
  MetricsLog log(folder_);
  log.write({.step = 1, .metrics = {{"z", 1}, {"a", 2}, {"m", 3}}});
  const auto text = contents(jsonl_);
  EXPECT_NE(text.find("\"z\":1,\"a\":2,\"m\":3}\n"), std::string::npos) << text;
}

TEST_F(MetricsLogTest, TablesAndTensorBoardCanBeLeftOut) {
  MetricsLog log(folder_, {.csv = false, .tensorboard = false});
  log.write(row(1, 2));
  EXPECT_EQ(lines().size(), 2u);
  EXPECT_FALSE(std::filesystem::exists(path("metrics.csv")));
  EXPECT_FALSE(std::filesystem::exists(path("tensorboard")));
}

TEST_F(MetricsLogTest, WhatIsWrittenIsReadBack) {
  const std::vector<MetricRow> rows{
      {.step = 1, .kind = MetricKind::train, .metrics = {{"loss", 0.1}, {"tokens", 1LL << 40}}},
      {.step = 1, .kind = MetricKind::eval, .metrics = {{"loss", 5.0}}},
      {.step = 2,
       .kind = MetricKind::event,
       .metrics = {{"sample", "To be,\n\"or\" \xe2\x82\xac"}}}};
  MetricsLog log(folder_);
  for (const auto& each : rows) log.write(each);
  EXPECT_EQ(read_metrics(log.path()), rows);
}

TEST_F(MetricsLogTest, NaNIsWrittenAndReadBack) {
  MetricsLog log(folder_);
  log.write(row(1, std::nan("")));
  EXPECT_TRUE(lines()[1]["loss"].is_null());
  EXPECT_EQ(contents(path("metrics.csv")), "step,loss\n1,nan\n");
  EXPECT_TRUE(std::isnan(std::get<double>(read_metrics(jsonl_).at(0).metrics.at(0).value)));
}

TEST_F(MetricsLogTest, OfAResumedRunOnlyValidRowsAreRead) {
  {
    MetricsLog log(folder_);
    for (int step = 1; step <= 6; ++step) log.write(row(step, step));
  }
  append(jsonl_, R"({"kind":"train","step":7,"lo)");  // truncated by a crash
  EXPECT_EQ(read_metrics(jsonl_).size(), 6u);
  MetricsLog log(folder_, {.after = 4});
  log.write(row(5, 50));
  const auto rows = read_metrics(jsonl_);
  EXPECT_EQ(rows, (std::vector{row(1, 1), row(2, 2), row(3, 3), row(4, 4), row(5, 50)}));
  EXPECT_EQ(lines().size(), 9u) << "metrics.jsonl keeps the steps that were repeated";
  EXPECT_EQ(contents(path("metrics.csv")), "step,loss\n1,1\n2,2\n3,3\n4,4\n5,50\n");
  EXPECT_EQ(num_event_files(), 2u);
}

TEST_F(MetricsLogTest, ARenamedMetricIsReadAndContinuedUnderItsNewName) {
  const RenamedMetrics renamed{{"rate", "lr"}};
  { MetricsLog(folder_).write({.step = 1, .metrics = {{"loss", 2.0}, {"rate", 0.5}}}); }
  MetricsLog log(folder_, {.after = 1, .renamed = renamed});
  log.write({.step = 2, .metrics = {{"loss", 1.0}, {"lr", 0.25}}});
  EXPECT_EQ(read_metrics(jsonl_, {.renamed = renamed}),
            (std::vector<MetricRow>{{.step = 1, .metrics = {{"loss", 2.0}, {"lr", 0.5}}},
                                    {.step = 2, .metrics = {{"loss", 1.0}, {"lr", 0.25}}}}));
  EXPECT_EQ(contents(path("metrics.csv")), "step,loss,lr\n1,2,0.5\n2,1,0.25\n");
}

TEST_F(MetricsLogTest, ANewRunInTheFolderInvalidatesAllEarlierRows) {
  { MetricsLog(folder_).write(row(0, 1)); }
  MetricsLog log(folder_);
  log.write(row(0, 2));
  EXPECT_EQ(read_metrics(jsonl_), std::vector{row(0, 2)});
}

TEST_F(MetricsLogTest, ATruncatedLineOfAnyLengthIsRemoved) {
  { MetricsLog(folder_).write(row(1, 1)); }
  const auto before = contents(jsonl_);
  append(jsonl_, "{\"kind\":\"event\",\"text\":\"" + std::string(10'000, 'x'));
  const MetricsLog log(folder_, {.after = 1});
  EXPECT_EQ(contents(jsonl_).substr(0, before.size()), before);
  EXPECT_EQ(lines().size(), 3u);
}

TEST_F(MetricsLogTest, InvalidNamesAreRefusedBeforeAnythingIsWritten) {
  MetricsLog log(folder_);
  for (const std::string name : {"", "a,b", "a b", "a\n", "step", "kind", "time"}) {
    EXPECT_THROW(log.write({.step = 1, .metrics = {{"fine", 1.0}, {name, 1.0}}}), UsageError)
        << name;
  }
  EXPECT_THROW(log.write({.step = 1, .metrics = {{"twice", 1.0}, {"twice", 2.0}}}), UsageError);
  EXPECT_EQ(lines().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(path("metrics.csv")));
}

TEST_F(MetricsLogTest, AFileThatIsNotALogIsRefusedWithTheLineNumber) {
  for (const std::string line :
       {"no json", "[1]", "{}", R"({"kind":"odd","step":1})", R"({"kind":"train"})",
        R"({"kind":"start"})", R"({"kind":"train","step":1,"loss":[1]})"}) {
    std::filesystem::remove(jsonl_);
    append(jsonl_, R"({"kind":"train","step":1,"time":1,"loss":1})"
                   "\n" +
                       line + "\n");
    try {
      (void)read_metrics(jsonl_);
      FAIL() << line;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("Line 2 of "), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW((void)read_metrics(path("nowhere.jsonl")), SystemError);
}

TEST_F(MetricsLogTest, AFullDiskIsReported) {
  std::filesystem::create_symlink("/dev/full", jsonl_);
  EXPECT_THROW(MetricsLog{folder_}, SystemError);
}

}  // namespace
}  // namespace lockstep
