#include "lockstep/trace/trace.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <thread>

#include "lockstep/trace/span.h"

namespace lockstep {
namespace {

TraceEvent numbered(std::int64_t number) { return {.bytes = number, .kind = EventKind::span}; }

TEST(Trace, ASpanCoversItsScopeAndHasItsNumbers) {
  Trace trace;
  trace.begin_step(7);
  const auto before = ticks();
  { const Span span(&trace, {.bytes = 640, .index = 3, .kind = EventKind::data_read}); }
  const auto after = ticks();
  const auto events = trace.drain();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_LE(before, events[0].begin);
  EXPECT_LE(events[0].begin, events[0].end);
  EXPECT_LE(events[0].end, after);
  EXPECT_EQ(events[0].step, 7);
  EXPECT_EQ(events[0].bytes, 640);
  EXPECT_EQ(events[0].index, 3);
  EXPECT_TRUE(trace.drain().empty()) << "an event is drained once";
}

TEST(Trace, ANullTraceRecordsNothing) {
  const Span span(nullptr, "nothing");
  Trace outside({.window = {.first = 5, .last = 6}});
  { const Span before(&outside, "before the window"); }
  EXPECT_TRUE(outside.drain().empty());
}

TEST(Trace, RecordsTheStepsOfItsWindowOnly) {
  std::string calls;
  Trace trace({.window = {.first = 2, .last = 3},
               .on_step = [&](bool last) { calls += last ? 'L' : '.'; }});
  for (std::int64_t step = 1; step <= 5; ++step) {
    trace.begin_step(step);
    const Span span(&trace, "work");
    trace.count_step();  // no effect: steps are set
  }
  EXPECT_EQ(calls, ".L");
  std::map<std::pair<EventKind, std::int64_t>, int> counts;
  for (const auto& event : trace.drain()) ++counts[{event.kind, event.step}];
  const std::map<std::pair<EventKind, std::int64_t>, int> expected{{{EventKind::step, 2}, 1},
                                                                   {{EventKind::step, 3}, 1},
                                                                   {{EventKind::span, 2}, 1},
                                                                   {{EventKind::span, 3}, 1}};
  EXPECT_EQ(counts, expected);
}

TEST(Trace, ReductionsCountStepsWhereNothingElseDoes) {
  Trace trace({.window = {.first = 1, .last = 2}});
  for (int i = 0; i < 4; ++i) trace.count_step();
  EXPECT_EQ(trace.step(), 4);
  EXPECT_EQ(trace.drain().size(), 2U);
}

TEST(Trace, AFullRingLosesTheNewestAndCountsThem) {
  Trace trace({.events_per_thread = 16});
  for (int i = 0; i < 20; ++i) trace.record(numbered(i));
  EXPECT_EQ(trace.num_lost(), 4);
  auto events = trace.drain();
  ASSERT_EQ(events.size(), 16U);
  EXPECT_EQ(events.back().bytes, 15);
  trace.record(numbered(99));
  events = trace.drain();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].bytes, 99);
}

// Oracle: each thread numbers its events; none may be lost, repeated or out of order.
TEST(Trace, EventsOfManyThreadsAllArriveWhileTheyAreDrained) {
  constexpr int threads = 4;
  constexpr std::int64_t events = 50'000;
  Trace trace({.events_per_thread = 1 << 16});
  std::array<std::int64_t, threads> next{};
  const auto check = [&] {
    for (const auto& event : trace.drain()) {
      ASSERT_EQ(event.bytes, next[static_cast<std::size_t>(event.index)]++);
    }
  };
  {
    std::vector<std::jthread> writers;
    for (int t = 0; t < threads; ++t) {
      writers.emplace_back([&trace, t] {
        for (std::int64_t i = 0; i < events; ++i) trace.record({.bytes = i, .index = t});
      });
    }
    for (int i = 0; i < 20; ++i) check();
  }
  check();
  for (const auto count : next) EXPECT_EQ(count, events);
  EXPECT_EQ(trace.num_lost(), 0);
}

TEST(Trace, AThreadMayWriteToSeveralTraces) {
  Trace first;
  Trace second;
  for (int i = 0; i < 10; ++i) {
    first.record(numbered(i));
    second.record(numbered(100 + i));
  }
  EXPECT_EQ(first.drain().size(), 10U);
  const auto events = second.drain();
  ASSERT_EQ(events.size(), 10U);
  EXPECT_EQ(events[9].bytes, 109);
}

TEST(Trace, AnInternedNameIsStoredOnce) {
  Trace trace;
  std::string name = "aten::mm";
  const auto* first = trace.intern(name);
  name = "changed";
  EXPECT_STREQ(first, "aten::mm");
  EXPECT_EQ(first, trace.intern("aten::mm"));
}

TEST(Trace, TheTraceOfTheProcessLeavesWhenItIsDestroyed) {
  EXPECT_EQ(process_trace(), nullptr);
  {
    Trace trace;
    set_process_trace(&trace);
    EXPECT_EQ(process_trace(), &trace);
  }
  EXPECT_EQ(process_trace(), nullptr);
}

}  // namespace
}  // namespace lockstep
