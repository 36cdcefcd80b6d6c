#include "lockstep/ddp/operator_trace.h"

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

namespace lockstep {
namespace {

// Callbacks of LibTorch are plain functions, so the trace is a variable of this file.
std::atomic<Trace*> observed{nullptr};

// The number of the line of this thread.
std::int32_t line_of_this_thread() {
  static std::atomic<std::int32_t> count{0};
  thread_local const std::int32_t line = count++;
  return line;
}

struct Running final : at::ObserverContext {
  Ticks begin = 0;
};

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& /*function*/) {
  const auto* trace = observed.load(std::memory_order_relaxed);
  if (trace == nullptr || !trace->is_active()) return nullptr;
  auto running = std::make_unique<Running>();
  running->begin = ticks();
  return running;
}

// Operators have static names, but a program may give record functions names of its own.
const char* name_of(const at::RecordFunction& function, Trace& trace) {
  thread_local std::unordered_map<std::string, const char*> known;
  thread_local const Trace* of = nullptr;
  if (of != &trace) known.clear();
  of = &trace;
  auto& name = known[function.name()];
  if (name == nullptr) name = trace.intern(function.name());
  return name;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto end = ticks();
  auto* trace = observed.load(std::memory_order_relaxed);
  if (trace == nullptr) return;
  trace->record({.begin = static_cast<Running*>(context)->begin,
                 .end = end,
                 .name = name_of(function, *trace),
                 .index = line_of_this_thread(),
                 .kind = EventKind::op,
                 .lane = Lane::operators});
}

}  // namespace

void observe_operators(Trace& trace) {
  if (!trace.options().operators || !trace.claim_operators()) return;
  observed.store(&trace, std::memory_order_relaxed);
  at::addGlobalCallback(at::RecordFunctionCallback(&on_begin, &on_end)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                     at::RecordScope::USER_SCOPE}));
}

}  // namespace lockstep
