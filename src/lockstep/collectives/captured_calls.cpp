#include "lockstep/collectives/captured_calls.h"

#include "lockstep/collectives/current_stream_internal.h"
#include "lockstep/fabric/group.h"

namespace lockstep {

void CapturedCalls::allow(bool allowed) const noexcept { group_.group_->allow_capture(allowed); }

void CapturedCalls::enter_replay() const {
  if (group_.size() > 1) group_.barrier({.name = "replay of a CUDA graph"}).wait();
}

void CapturedCalls::note_replay(at::Device device) const {
  group_.group_->note_replay(
      current_stream_of({DeviceKind::cuda, static_cast<int>(device.index())}));
}

}  // namespace lockstep
