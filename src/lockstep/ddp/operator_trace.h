// LibTorch's operators as events of a trace, through LibTorch's own observer (RecordFunction).
#pragma once

#include "lockstep/trace/trace.h"

namespace lockstep {

/// Records every operator of this process in `trace`, on the lane operators, if
/// TraceOptions::operators is set; one line per thread. Has no effect if another call has done it.
/// The observer stays until the end of the process and costs about 0.1 us per operator in the
/// window of `trace`, which must outlive all operators.
void observe_operators(Trace& trace);

}  // namespace lockstep
