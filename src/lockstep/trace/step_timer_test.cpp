#include "lockstep/trace/step_timer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

#include "lockstep/trace/rank_state.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Works until `time` has passed: a sleep would end later.
void spin(std::chrono::nanoseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

double milliseconds(std::chrono::nanoseconds time) {
  return 1e-6 * static_cast<double>(time.count());
}

// The times before and after a call, which reads the timer's clock between them, however long this
// thread does not run.
struct Moment {
  Clock::time_point before;
  Clock::time_point after;

  template <typename Call>
  explicit Moment(const Call& call) : before(Clock::now()), after((call(), Clock::now())) {}
};

// The two clocks may differ by 500 parts per million.
void expect_between(const Moment& begin, const Moment& end, std::chrono::nanoseconds time) {
  EXPECT_GE(milliseconds(time), 0.999 * milliseconds(end.before - begin.after) - 0.01);
  EXPECT_LE(milliseconds(time), 1.001 * milliseconds(end.after - begin.before) + 0.01);
}

TEST(StepTimer, PartsSumToTheStep) {
  StepTimer timer({.trace = nullptr});
  std::optional<Moment> begin;  // of the step: the end of the previous one
  for (int step = 1; step <= 3; ++step) {
    const Moment call([&] { timer.begin_step(step); });
    if (!begin) begin = call;
    spin(1ms);
    timer.enter(StepPart::data_wait);
    spin(2ms);
    timer.enter(StepPart::forward);
    spin(3ms);
    timer.enter(StepPart::data_wait);  // the second micro-batch
    spin(2ms);
    timer.enter(StepPart::optimizer);
    spin(1ms);
    StepSplit split;
    const Moment end([&] { split = timer.end_step(); });
    expect_between(*begin, end, split.whole());
    begin = end;
    EXPECT_GE(milliseconds(split[StepPart::data_wait]), 3.99);
    EXPECT_GE(milliseconds(split[StepPart::forward]), 2.99);
    EXPECT_GE(milliseconds(split[StepPart::other]), 0.99);
    EXPECT_EQ(split[StepPart::evaluation], 0ns);
  }
}

TEST(StepTimer, TheTimeBetweenTwoStepsBelongsToTheSecond) {
  StepTimer timer({.trace = nullptr});
  spin(2ms);  // before the first step: no part of it
  StepSplit first;
  StepSplit second;
  const Moment begin([&] { timer.begin_step(1); });
  const Moment middle([&] { first = timer.end_step(); });
  expect_between(begin, middle, first.whole());
  spin(3ms);
  timer.begin_step(2);
  timer.enter(StepPart::forward);
  const Moment end([&] { second = timer.end_step(); });
  EXPECT_GE(milliseconds(second[StepPart::other]), 2.99);
  expect_between(middle, end, second.whole());
  first += second;
  expect_between(begin, end, first.whole());
}

TEST(StepTimer, MovedTimeLeavesItsPart) {
  StepTimer timer({.trace = nullptr});
  timer.begin_step(1);
  timer.enter(StepPart::backward);
  spin(5ms);
  timer.move(StepPart::exposed, 2ms);
  timer.enter(StepPart::optimizer);
  timer.move(StepPart::exposed, 1h);  // more than there was: all of it
  spin(1ms);
  const auto split = timer.end_step();
  EXPECT_GE(milliseconds(split[StepPart::exposed]), 2.99);
  EXPECT_GE(milliseconds(split[StepPart::backward]), 2.99);
  EXPECT_EQ(split[StepPart::optimizer], 0ns);
}

TEST(StepTimer, TracesItsPartsWithoutGaps) {
  Trace trace({.window = {.first = 2, .last = 2}});
  StepTimer timer({.trace = &trace});
  for (int step = 1; step <= 3; ++step) {
    timer.begin_step(step);
    timer.enter(StepPart::forward);
    spin(100us);
    timer.enter(StepPart::backward);
    spin(100us);
    timer.move(StepPart::exposed, 50us);
    (void)timer.end_step();
  }
  std::vector<TraceEvent> parts;
  TraceEvent step;
  for (const auto& event : trace.drain()) {
    if (event.kind == EventKind::part) parts.push_back(event);
    if (event.kind == EventKind::step) step = event;
  }
  // The last one is the time until the next step.
  ASSERT_GE(parts.size(), 4U);
  EXPECT_EQ(static_cast<StepPart>(parts[parts.size() - 2].index), StepPart::exposed);
  for (std::size_t i = 1; i < parts.size(); ++i) EXPECT_EQ(parts[i - 1].end, parts[i].begin);
  EXPECT_EQ(step.step, 2);
  EXPECT_EQ(step.begin, parts.front().begin);
  EXPECT_EQ(parts.back().end, step.end);
}

TEST(StepTimer, WritesThePageOfItsRank) {
  RankPage::Words words{};
  RankPage page(words, nullptr);
  StepTimer timer({.trace = nullptr, .page = &page});
  timer.begin_step(4);
  timer.enter(StepPart::data_wait);
  timer.enter(StepPart::forward);
  const auto state = read_page(words, 0, RankPage::nanoseconds_now());
  EXPECT_EQ(state.step, 4);
  EXPECT_EQ(state.part, StepPart::forward);
}

}  // namespace
}  // namespace lockstep
