#include "lockstep/collectives/forward_record.h"

#include <utility>

namespace lockstep {
namespace {

// Scopes are on the stacks of their threads.
template <typename Scope>
Scope*& innermost() noexcept {
  thread_local Scope* scope = nullptr;
  return scope;
}

}  // namespace

ForwardRecord::Scope::Scope(ForwardRecord* the_recorded, const ForwardRecord* the_repeated)
    : recorded(the_recorded),
      repeated(the_repeated),
      outer(std::exchange(innermost<Scope>(), this)) {}

ForwardRecord::Scope::~Scope() { innermost<Scope>() = outer; }

bool repeats_forward() noexcept {
  for (const auto* scope = innermost<ForwardRecord::Scope>(); scope != nullptr;
       scope = scope->outer) {
    if (scope->repeated != nullptr) return true;
  }
  return false;
}

std::shared_ptr<const ForwardValue> repeated_value() {
  for (const auto* scope = innermost<ForwardRecord::Scope>(); scope != nullptr;
       scope = scope->outer) {
    if (scope->repeated == nullptr) continue;
    const auto& values = scope->repeated->values_;
    return scope->next < values.size() ? values[scope->next] : nullptr;
  }
  return nullptr;
}

void note_value(const std::shared_ptr<const ForwardValue>& value) {
  for (auto* scope = innermost<ForwardRecord::Scope>(); scope != nullptr; scope = scope->outer) {
    if (scope->repeated != nullptr) {
      ++scope->next;
      return;
    }
    scope->recorded->values_.push_back(value);
  }
}

}  // namespace lockstep
