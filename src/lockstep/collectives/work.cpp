#include "lockstep/collectives/work.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/collectives/current_stream_internal.h"
#include "lockstep/collectives/device_alone_internal.h"
#include "lockstep/fabric/group.h"

namespace lockstep {

Work::Work(std::shared_ptr<Group> group, std::vector<std::shared_ptr<Operation>> operations)
    : group_(std::move(group)), operations_(std::move(operations)) {}

void Work::wait_for_all(std::optional<Deadline> deadline) {
  for (const auto& operation : operations_) {
    if (operation->device.kind == DeviceKind::cpu) {
      group_->wait(*operation, deadline);
    } else {
      group_->make_wait(*operation, current_stream_of(operation->device), deadline);
    }
  }
}

void Work::wait() { wait_for_all(std::nullopt); }

void Work::wait(Deadline deadline) { wait_for_all(deadline); }

void Work::synchronize() {
  for (const auto& operation : operations_) {
    group_->synchronize(*operation);
    const auto& device = operation->processed_on;
    if (device.kind == DeviceKind::cpu) continue;
    synchronize_stream({at::kCUDA, static_cast<at::DeviceIndex>(device.index)});
  }
}

bool Work::done() {
  for (const auto& operation : operations_) {
    if (!group_->done(*operation)) return false;
  }
  return true;
}

const GroupFlags& Work::flags() const {
  if (operations_.empty()) throw UsageError("Work without operations has no flags");
  return operations_.back()->flags();
}

WorkTimes Work::times() const noexcept {
  if (operations_.empty()) return {};
  return {.all_entered = operations_.front()->begun_at, .done = operations_.back()->done_at};
}

}  // namespace lockstep
