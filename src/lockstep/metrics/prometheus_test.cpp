#include "lockstep/metrics/prometheus.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/metrics/test_folder_internal.h"

namespace lockstep {
namespace {

TEST(Prometheus, AFamilyIsHelpTypeAndSamples) {
  const std::vector<PrometheusFamily> families{
      {.name = "lockstep_rank_step",
       .help = "The step.",
       .samples = {{.labels = {{"rank", "0"}, {"host", "a"}}, .value = 812},
                   {.labels = {{"rank", "1"}, {"host", "b"}}, .value = 0.25}}},
      {.name = "lockstep_restarts_total",
       .help = "Restarts.",
       .type = PrometheusType::counter,
       .samples = {{.value = 2}}}};
  EXPECT_EQ(to_prometheus(families),
            "# HELP lockstep_rank_step The step.\n"
            "# TYPE lockstep_rank_step gauge\n"
            "lockstep_rank_step{rank=\"0\",host=\"a\"} 812\n"
            "lockstep_rank_step{rank=\"1\",host=\"b\"} 0.25\n"
            "# HELP lockstep_restarts_total Restarts.\n"
            "# TYPE lockstep_restarts_total counter\n"
            "lockstep_restarts_total 2\n");
}

TEST(Prometheus, TextsAreEscapedAndSpecialNumbersHaveTheirWords) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<PrometheusFamily> families{
      {.name = "x",
       .help = "a\\b\nc\"",
       .samples = {{{{"l", "q\"\\\n"}}, std::nan("")}, {{}, infinity}, {{}, -infinity}}}};
  EXPECT_EQ(to_prometheus(families),
            "# HELP x a\\\\b\\nc\"\n"
            "# TYPE x gauge\n"
            "x{l=\"q\\\"\\\\\\n\"} NaN\n"
            "x +Inf\n"
            "x -Inf\n");
}

TEST(Prometheus, InvalidNamesAreRefused) {
  for (const auto* name : {"", "9x", "a.b", "a b"}) {
    const std::vector<PrometheusFamily> families{{.name = name, .help = ""}};
    EXPECT_THROW((void)to_prometheus(families), UsageError) << name;
  }
}

TEST(Prometheus, ARowBecomesGaugesInBaseUnits) {
  const MetricRow row{.step = 10,
                      .metrics = {{"loss", 5.25},
                                  {"step_ms", 125.0},
                                  {"top-5/accuracy", 0.5},
                                  {"epoch", std::int64_t{3}},
                                  {"sample", std::string("To be")}}};
  const auto text = to_prometheus(prometheus_of(row));
  EXPECT_NE(text.find("\nlockstep_train_step 10\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nlockstep_train_loss 5.25\n"), std::string::npos);
  EXPECT_NE(text.find("\nlockstep_train_step_seconds 0.125\n"), std::string::npos);
  EXPECT_NE(text.find("\nlockstep_train_top_5_accuracy 0.5\n"), std::string::npos);
  EXPECT_NE(text.find("\nlockstep_train_epoch 3\n"), std::string::npos);
  EXPECT_EQ(text.find("sample"), std::string::npos);
}

using PrometheusFile = FolderTest;

TEST_F(PrometheusFile, TheLastRowsAreThoseAtTheEndOfALongFile) {
  const auto metrics = path("metrics.jsonl");
  EXPECT_TRUE(last_rows(metrics).empty());
  std::ofstream file(metrics);
  for (int i = 0; i < 20'000; ++i) {
    file << R"({"kind":"train","step":)" << i << R"(,"time":1.5,"loss":)" << i << ".5}\n";
    if (i % 5'000 == 0)
      file << R"({"kind":"eval","step":)" << i << R"(,"time":1,"loss":7})" << '\n';
    file << R"({"kind":"rank","step":)" << i << R"(,"time":1,"rank":1,"loss":9})" << '\n';
  }
  file << R"({"kind":"eval","step":19999,"time":1,"loss":8})" << '\n';
  file << R"({"kind":"train","step":20000,"lo)";  // a crash
  file.close();
  const auto rows = last_rows(metrics);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kind, MetricKind::train);
  EXPECT_EQ(rows[0].step, 19'999);
  EXPECT_EQ(rows[0].metrics.front(), (Metric{"loss", 19'999.5}));
  EXPECT_EQ(rows[1].kind, MetricKind::eval);
  EXPECT_EQ(rows[1].metrics.front(), (Metric{"loss", 8.0}));
}

}  // namespace
}  // namespace lockstep
