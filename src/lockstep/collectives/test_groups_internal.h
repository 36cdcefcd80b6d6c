// For tests. Groups with threads of this process as ranks.
#pragma once

#include <functional>

#include "lockstep/collectives/process_group.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {

// Runs `body` on every rank; ranks are threads.
inline void with_groups(int size, const std::function<void(ProcessGroup&)>& body,
                        const ProcessGroupOptions& options = {}) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
    ProcessGroup group(point.join(self.rank(), self.size()), options);
    body(group);
  });
}

// The same; the group must be usable at the end.
inline void with_sound_groups(int size, const std::function<void(ProcessGroup&)>& body) {
  with_groups(size, [&](ProcessGroup& group) {
    body(group);
    group.barrier().wait();
  });
}

}  // namespace lockstep
