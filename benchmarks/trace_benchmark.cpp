// The cost of tracing. Bars: a recorded span 50 ns, a span without a trace 2 ns. The reads of
// clocks are for comparison.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>

#include "lockstep/trace/rank_page.h"
#include "lockstep/trace/span.h"
#include "lockstep/trace/step_timer.h"

namespace {

constexpr int kSpans = 1 << 14;  // per iteration: half of a ring, which is drained in between

// The column of the counter is the time per span.
void span_recorded(benchmark::State& state) {
  lockstep::Trace trace;
  for (auto _ : state) {
    for (int i = 0; i < kSpans; ++i) {
      const lockstep::Span span(&trace, {.bytes = i, .kind = lockstep::EventKind::data_read});
    }
    state.PauseTiming();
    benchmark::DoNotOptimize(trace.drain());
    state.ResumeTiming();
  }
  if (trace.num_lost() != 0) state.SkipWithError("events were lost");
  state.counters["per_span"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kSpans,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(span_recorded);

void span_without_trace(benchmark::State& state) {
  lockstep::Trace* trace = nullptr;
  for (auto _ : state) {
    benchmark::DoNotOptimize(trace);
    const lockstep::Span span(trace, "nothing");
  }
}
BENCHMARK(span_without_trace);

void span_outside_of_the_window(benchmark::State& state) {
  lockstep::Trace trace({.window = {.first = 10, .last = 20}});
  for (auto _ : state) const lockstep::Span span(&trace, "nothing");
}
BENCHMARK(span_outside_of_the_window);

// Once per part of a step, in every run.
void change_of_part(benchmark::State& state) {
  lockstep::RankPage page;
  lockstep::StepTimer timer({.trace = nullptr, .page = &page});
  timer.begin_step(1);
  for (auto _ : state) timer.enter(lockstep::StepPart::forward);
}
BENCHMARK(change_of_part);

// The page of a rank, always on. Bar: 20 ns per update.
void page_part(benchmark::State& state) {
  lockstep::RankPage page;
  page.step(1);
  int bucket = 0;
  for (auto _ : state) page.enter(lockstep::StepPart::backward, ++bucket & 7);
}
BENCHMARK(page_part);

// Two updates: the begin and the end of a collective call.
void page_call(benchmark::State& state) {
  lockstep::RankPage page;
  const lockstep::RankPage::CallName name = "gradients 4";
  std::uint64_t number = 0;
  for (auto _ : state) {
    page.begin_call(1, ++number, 0, name, lockstep::ticks());
    page.end_call(1, number);
  }
}
BENCHMARK(page_call);

void read_of_ticks(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(lockstep::ticks());
}
BENCHMARK(read_of_ticks);

void read_of_steady_clock(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(std::chrono::steady_clock::now());
}
BENCHMARK(read_of_steady_clock);

}  // namespace
