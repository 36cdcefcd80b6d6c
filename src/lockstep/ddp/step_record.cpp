#include "lockstep/ddp/step_record.h"

#include <fmt/format.h>

namespace lockstep {

double BucketRecord::bytes_per_second() const noexcept {
  const auto seconds = std::chrono::duration<double>(done - launched).count();
  return done == StepClock::time_point{} || seconds <= 0 ? 0 : static_cast<double>(bytes) / seconds;
}

void trace(const StepRecord& record, StepClock::time_point end, TraceSink& sink) {
  for (std::size_t i = 0; i < record.buckets.size(); ++i) {
    const auto& bucket = record.buckets[i];
    if (bucket.done == StepClock::time_point{}) continue;
    sink.record(TraceSpan{fmt::format("bucket {} ready", i), bucket.ready, bucket.launched});
    sink.record(TraceSpan{fmt::format("bucket {} reduced ({} bytes, {:.2f} GB/s)", i, bucket.bytes,
                                      bucket.bytes_per_second() / 1e9),
                          bucket.launched, bucket.done});
  }
  sink.record(TraceSpan{"exposed communication", end - record.exposed, end});
}

}  // namespace lockstep
