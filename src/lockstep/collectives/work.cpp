#include "lockstep/collectives/work.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

Work::Work(std::shared_ptr<Engine> engine, std::vector<std::shared_ptr<Operation>> operations)
    : engine_(std::move(engine)), operations_(std::move(operations)) {}

void Work::wait() {
  for (const auto& operation : operations_) engine_->wait(*operation);
}

void Work::wait(Deadline deadline) {
  for (const auto& operation : operations_) engine_->wait(*operation, deadline);
}

bool Work::done() {
  for (const auto& operation : operations_) {
    if (!engine_->done(*operation)) return false;
  }
  return true;
}

const GroupFlags& Work::flags() const {
  if (operations_.empty()) throw UsageError("work of nothing has no flags");
  return operations_.back()->flags();
}

}  // namespace lockstep
