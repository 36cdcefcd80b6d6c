#include "lockstep/collectives/captured_calls.h"

#include "lockstep/collectives/current_stream_internal.h"
#include "lockstep/fabric/group.h"

namespace lockstep {
namespace {

void* stream_of(at::Device device) {
  return current_stream_of({DeviceKind::cuda, static_cast<int>(device.index())});
}

}  // namespace

void CapturedCalls::allow(bool allowed) const noexcept { group_.group_->allow_capture(allowed); }

// Also in a group of one rank, whose earlier calls may wait for NCCL.
void CapturedCalls::enter_replay(at::Device device) const {
  group_.barrier({.name = "replay of a CUDA graph"}).wait();
  group_.group_->begin_replay(stream_of(device));
}

void CapturedCalls::note_replay(at::Device device) const {
  group_.group_->note_replay(stream_of(device));
}

}  // namespace lockstep
