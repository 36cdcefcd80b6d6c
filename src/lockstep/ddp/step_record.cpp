#include "lockstep/ddp/step_record.h"

#include <algorithm>

#include "lockstep/trace/step_split.h"

namespace lockstep {
namespace {

bool was_reduced(const BucketRecord& bucket) noexcept {
  return bucket.done != StepClock::time_point{};
}

}  // namespace

double BucketRecord::bytes_per_second() const noexcept {
  const auto begin = std::max(launched, all_entered);
  const auto seconds = std::chrono::duration<double>(done - begin).count();
  return !was_reduced(*this) || seconds <= 0 ? 0 : static_cast<double>(bytes) / seconds;
}

StepClock::time_point last_entry(const StepRecord& record) noexcept {
  StepClock::time_point last{};
  for (const auto& bucket : record.buckets) {
    if (was_reduced(bucket)) last = std::max(last, bucket.launched);
  }
  return last;
}

std::chrono::nanoseconds reducing_time(const StepRecord& record) {
  std::chrono::nanoseconds sum{0};
  StepClock::time_point until{};  // buckets are launched in order
  for (const auto& bucket : record.buckets) {
    if (!was_reduced(bucket) || bucket.done <= until) continue;
    sum += bucket.done - std::max(bucket.launched, until);
    until = bucket.done;
  }
  return sum;
}

void BucketMeter::add(const StepRecord& record, StepClock::time_point begin) {
  if (sums_.size() != record.buckets.size()) *this = {};
  sums_.resize(record.buckets.size());
  ++steps_;
  const auto since = [&](StepClock::time_point at) {
    return std::chrono::duration<double, std::milli>(at - begin).count();
  };
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    const auto& bucket = record.buckets[i];
    if (!was_reduced(bucket)) continue;
    const auto all_entered = std::max(bucket.launched, bucket.all_entered);
    auto& sum = sums_[i];
    sum.bytes += static_cast<double>(bucket.bytes);
    sum.ready_ms += since(bucket.ready);
    sum.launched_ms += since(bucket.launched);
    sum.all_in_ms += since(all_entered);
    sum.done_ms += since(bucket.done);
    sum.gb_per_s += since(bucket.done) - since(all_entered);
  }
}

std::vector<double> BucketMeter::read_and_reset() {
  std::vector<double> numbers{static_cast<double>(steps_)};
  const auto stride = (sums_.size() + kMaxBuckets - 1) / kMaxBuckets;
  for (std::size_t i = 0; i < sums_.size(); i += stride) {
    BucketFigures sum{.count = 0};
    for (auto each = i; each < std::min(i + stride, sums_.size()); ++each) {
      const auto& bucket = sums_[each];
      if (bucket.bytes == 0) continue;  // frozen
      sum.bytes += bucket.bytes;
      sum.ready_ms += bucket.ready_ms;
      sum.launched_ms += bucket.launched_ms;
      sum.all_in_ms += bucket.all_in_ms;
      sum.done_ms += bucket.done_ms;
      sum.gb_per_s += bucket.gb_per_s;
      sum.count += 1;
    }
    numbers.insert(numbers.end(), {static_cast<double>(i), sum.count, sum.bytes, sum.ready_ms,
                                   sum.launched_ms, sum.all_in_ms, sum.done_ms, sum.gb_per_s});
  }
  *this = {};
  return numbers;
}

std::vector<BucketFigures> mean_buckets(std::span<const std::vector<double>> of_ranks) {
  constexpr std::size_t each = 8;
  std::vector<BucketFigures> result;
  if (of_ranks.empty()) return result;
  for (std::size_t at = 1; at + each <= of_ranks.front().size(); at += each) {
    BucketFigures mean{.bucket = static_cast<int>(of_ranks.front()[at])};
    mean.count = of_ranks.front()[at + 1];
    double steps = 0;
    double reducing = 0;
    for (const auto& numbers : of_ranks) {
      if (numbers.size() != of_ranks.front().size()) continue;
      steps += numbers[0];
      mean.bytes += numbers[at + 2];
      mean.ready_ms += numbers[at + 3];
      mean.launched_ms += numbers[at + 4];
      mean.all_in_ms += numbers[at + 5];
      mean.done_ms += numbers[at + 6];
      reducing += numbers[at + 7];
    }
    if (steps == 0 || mean.bytes == 0) continue;  // frozen
    mean.gb_per_s = reducing > 0 ? 1e-6 * mean.bytes / reducing : 0;
    for (auto* figure :
         {&mean.bytes, &mean.ready_ms, &mean.launched_ms, &mean.all_in_ms, &mean.done_ms}) {
      *figure /= steps * mean.count;
    }
    result.push_back(mean);
  }
  return result;
}

void trace(const StepRecord& record, Trace& trace) {
  if (trace.is_active()) {
    const auto anchor = TickAnchor::now();
    const auto now = ticks();
    const auto now_steady = anchor.steady(now);
    const auto ticks_before = [&](std::chrono::nanoseconds time) {
      const auto count = std::max(0.0, static_cast<double>(time.count()));
      return now - static_cast<Ticks>(count / anchor.nanoseconds_per_tick());
    };
    for (std::size_t i = 0; i < record.buckets.size(); ++i) {
      const auto& bucket = record.buckets[i];
      if (!was_reduced(bucket)) continue;
      const auto entered = std::max(bucket.launched, bucket.all_entered);
      const auto add = [&](EventKind kind, StepClock::time_point begin, StepClock::time_point end) {
        if (end <= begin) return;
        trace.record({.begin = ticks_before(now_steady - begin),
                      .end = ticks_before(now_steady - end),
                      .bytes = bucket.bytes,
                      .index = static_cast<std::int32_t>(i),
                      .kind = kind,
                      .lane = Lane::bucket});
      };
      if (bucket.room.count() > 0) {
        trace.record({.begin = ticks_before(now_steady - (bucket.launched - bucket.room)),
                      .end = ticks_before(now_steady - bucket.launched),
                      .name = "wait for memory of gradients",
                      .kind = EventKind::span,
                      .lane = Lane::communication});
      }
      add(EventKind::bucket_ready, bucket.ready, bucket.launched);
      add(EventKind::bucket_wait, bucket.launched, entered);
      add(EventKind::bucket_reduce, entered, bucket.done);
    }
    trace.record({.begin = ticks_before(record.exposed),
                  .end = now,
                  .name = "exposed communication",
                  .kind = EventKind::span,
                  .lane = Lane::communication});
  }
  trace.count_step();
}

}  // namespace lockstep
