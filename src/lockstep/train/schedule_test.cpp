#include "lockstep/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/train/lr_scaling.h"

namespace lockstep {
namespace {

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

TEST(Schedule, PiecesFollowTheirFormulas) {
  const double pi = std::acos(-1.0);
  for (const std::int64_t step : {0, 1, 7, 49, 98, 99, 100, 101, 1000}) {
    const double t = static_cast<double>(std::min<std::int64_t>(step, 100)) / 100;
    EXPECT_EQ(constant(0.3).at(step), 0.3);
    EXPECT_DOUBLE_EQ(linear_warmup(100).at(step),
                     static_cast<double>(std::min<std::int64_t>(step + 1, 100)) / 100);
    EXPECT_NEAR(cosine(100, {.min_lr_ratio = 0.1}).at(step), 0.1 + 0.9 * (1 + std::cos(pi * t)) / 2,
                1e-15);
    EXPECT_NEAR(linear_decay(100, {.min_lr_ratio = 0.2}).at(step), 1 - 0.8 * t, 1e-15);
    EXPECT_DOUBLE_EQ(step_decay(30, 0.5).at(step), std::pow(0.5, static_cast<double>(step / 30)));
  }
  EXPECT_EQ(linear_warmup(4, {.from = 0.5}).at(0), 0.625);
  EXPECT_EQ(cosine(100, {.min_lr_ratio = 0.1}).at(100), 0.1);
  EXPECT_EQ(linear_decay(3, {.min_lr_ratio = 0.2}).at(3), 0.2);
}

TEST(Schedule, PiecesAreMultipliedAndConcatenated) {
  const auto lr =
      3e-4 * linear_warmup(10).then(cosine(100, {.min_lr_ratio = 0.1})).then(constant(0.05));
  EXPECT_EQ(lr.length(), 110);
  EXPECT_DOUBLE_EQ(lr.at(0), 3e-5);
  EXPECT_DOUBLE_EQ(lr.at(9), 3e-4);
  EXPECT_DOUBLE_EQ(lr.at(10), 3e-4);  // the cosine's first step
  EXPECT_DOUBLE_EQ(lr.at(60), 3e-4 * 0.55);
  EXPECT_DOUBLE_EQ(lr.at(110), 3e-4 * 0.05);
  const auto both = linear_warmup(10) * step_decay(5, 0.1);
  EXPECT_DOUBLE_EQ(both.at(7), 0.8 * 0.1);
  EXPECT_FALSE(both.length());
  EXPECT_EQ(
      lr.describe(),
      "0.0003 × (linear warm-up over 10 steps, then cosine over 100 steps to 0.1, then 0.05)");
}

TEST(Schedule, IsRestoredFromItsJson) {
  const auto lr = 0.1 * linear_warmup(3, {.from = 0.25}).then(linear_decay(7)) *
                  (step_decay(2, 0.7) * cosine(20, {.min_lr_ratio = 0.3}));
  const auto again = schedule_from_json(lr.state_json());
  for (std::int64_t step = 0; step < 30; ++step) EXPECT_EQ(again.at(step), lr.at(step));
  EXPECT_EQ(again.describe(), lr.describe());
  EXPECT_TRUE(lr.named_tensors().empty());
}

// Checkpoints of version 0.1 hold these texts: min_lr_ratio was called "floor".
TEST(Schedule, ReadsTheJsonOfVersion01) {
  const std::string saved =
      R"({"kind":"product","left":{"kind":"constant","value":0.1},"right":{"kind":"then",)"
      R"("first":{"kind":"cosine","floor":0.25,"steps":9},)"
      R"("next":{"kind":"linear_decay","floor":0.5,"steps":3}}})";
  auto lr = 0.1 * cosine(9, {.min_lr_ratio = 0.25}).then(linear_decay(3, {.min_lr_ratio = 0.5}));
  const auto read = schedule_from_json(saved);
  for (std::int64_t step = 0; step < 15; ++step) EXPECT_EQ(read.at(step), lr.at(step)) << step;
  EXPECT_NO_THROW(lr.load_state_json(saved));
  EXPECT_EQ(lr.state_json().find("floor"), std::string::npos);
  EXPECT_NE(lr.state_json().find("min_lr_ratio"), std::string::npos);
}

TEST(Schedule, RefusesToResumeWithAnother) {
  auto lr = 0.1 * constant(1);
  EXPECT_NO_THROW(lr.load_state_json(lr.state_json()));
  const auto message = failure_of([&] { lr.load_state_json(cosine(9).state_json()); });
  EXPECT_NE(message.find("cosine over 9 steps to 0"), std::string::npos) << message;
  EXPECT_NE(message.find("0.1 × (1)"), std::string::npos) << message;
}

TEST(Schedule, RefusesInvalidArguments) {
  EXPECT_THROW((void)constant(1).at(-1), UsageError);
  EXPECT_THROW((void)cosine(0), UsageError);
  EXPECT_THROW((void)constant(std::nan("")), UsageError);
  EXPECT_THROW((void)step_decay(10, 0.5).then(constant(1)), UsageError);
  std::string deep = R"({"kind":"constant","value":1})";
  for (int i = 0; i < 200; ++i) {
    deep = R"({"kind":"product","left":{"kind":"constant","value":1},"right":)" + deep + "}";
  }
  for (const auto& text :
       {std::string("nonsense"), std::string("{}"), std::string(R"({"kind":"sine"})"),
        std::string(R"({"kind":"cosine","steps":-4,"min_lr_ratio":0})"),
        std::string(R"({"kind":"constant","value":"1"})"), deep}) {
    EXPECT_THROW((void)schedule_from_json(text), UsageError) << text.substr(0, 80);
  }
}

TEST(LrScaling, KeepsAndPrintsItsFactors) {
  const auto linear = scale_lr(1e-4, 256, 1024, LrRule::linear);
  EXPECT_DOUBLE_EQ(linear.lr, 4e-4);
  EXPECT_EQ(describe(linear), "lr 0.0004 = 0.0001 × 1024/256 (linear)");
  const auto root = scale_lr(1e-4, 256, 1024, LrRule::square_root);
  EXPECT_DOUBLE_EQ(root.lr, 2e-4);
  EXPECT_EQ(describe(root), "lr 0.0002 = 0.0001 × √(1024/256) (square root)");
  EXPECT_THROW((void)scale_lr(1e-4, 0, 4, LrRule::linear), UsageError);
  EXPECT_THROW((void)scale_lr(0, 1, 4, LrRule::linear), UsageError);
}

}  // namespace
}  // namespace lockstep
