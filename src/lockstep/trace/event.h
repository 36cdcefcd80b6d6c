// One event of a trace: a span of time with numbers, or the value of a counter. Fixed size, without
// text of its own: recording one copies 56 bytes.
#pragma once

#include <cstdint>

#include "lockstep/base/ticks.h"

namespace lockstep {

/// Where a viewer shows an event. With TraceEvent::index it is one line: "bucket 3".
enum class Lane : std::uint8_t {
  step,           // whole steps
  compute,        // the parts of a step on the training thread, and the spans of a program
  operators,      // LibTorch's operators, one line per thread
  communication,  // exposed communication
  bucket,         // one line per bucket
  loader,         // one line per loader thread
  checkpoint,     // the thread that writes checkpoints
};

enum class EventKind : std::uint8_t {
  step,              // a whole step
  part,              // `index` is the StepPart
  span,              // of the program; has a name
  op,                // an operator; has a name
  bucket_ready,      // complete, but an earlier bucket is not launched yet
  bucket_wait,       // launched; other ranks have not entered yet
  bucket_reduce,     // all ranks have entered; until the average is there. Has bytes
  data_wait,         // the training thread waits for a batch; bytes of the batch
  data_read,         // a loader thread reads a batch
  checkpoint_stage,  // the state is copied
  checkpoint_write,  // the copy is written; has bytes
  counter,           // a value at `begin`; has a name
};

struct TraceEvent {
  Ticks begin = 0;
  Ticks end = 0;
  std::int64_t step = 0;       // set by Trace::record
  std::int64_t bytes = 0;      // moved; 0: none
  double value = 0;            // of a counter
  const char* name = nullptr;  // a literal, or of Trace::intern(); null: the name of the kind
  std::int32_t index = 0;      // which bucket, loader thread or part
  EventKind kind = EventKind::span;
  Lane lane = Lane::compute;
};

}  // namespace lockstep
