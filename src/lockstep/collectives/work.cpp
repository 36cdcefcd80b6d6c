#include "lockstep/collectives/work.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/collectives/device_alone_internal.h"
#include "lockstep/fabric/group.h"

namespace lockstep {

Work::Work(std::shared_ptr<Group> group, std::vector<std::shared_ptr<Operation>> operations)
    : group_(std::move(group)), operations_(std::move(operations)) {}

void Work::wait() {
  for (const auto& operation : operations_) group_->wait(*operation);
}

void Work::wait(Deadline deadline) {
  for (const auto& operation : operations_) group_->wait(*operation, deadline);
}

void Work::synchronize() {
  wait();
  for (const auto& operation : operations_) {
    const auto& device = operation->device;
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

}  // namespace lockstep
