// The progress of a group's operations: entered, begun when all ranks have entered, advanced,
// completed.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"

namespace lockstep {
namespace {

constexpr std::size_t kSmallBytes = 16U << 10;

}  // namespace

void Group::try_advance() noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock || failure_) return;
  try {
    advance_all();
  } catch (const Error&) {
    // Stored as the group's failure: the next function of that group throws it.
  }
}

std::uint64_t Group::number_of_next_call() {
  Wait wait;
  while (true) {
    const auto number = calls_ + 1;  // in every iteration: another thread may have entered a call
    // The counters are read only when the known free records are used up: a read takes the cache
    // line from its writer, so that a read per call would make every call wait for N lines.
    if (number <= room_until_) return number;
    room_until_ = control_->counters().lowest(Condition::Of::completed) + kMaxCallsInFlight;
    if (number <= room_until_) return number;
    // The record of this call is that of call `number - kMaxCallsInFlight`.
    const Awaited room{.counters = &control_->counters(),
                       .condition = {Condition::Of::completed, number - kMaxCallsInFlight}};
    advance_all();
    const auto lagging = room.lagging();
    if (!lagging) return number;
    // If this rank itself lags, it waits for what its oldest call awaits of another rank.
    const auto awaited = *lagging == rank() ? blocker_of(*queue_.front()) : room;
    if (const auto other = awaited.lagging()) wait_a_little(awaited, *other, wait);
  }
}

std::shared_ptr<CallOperation> Group::start_call(const Call& call,
                                                 std::shared_ptr<const void> keep) {
  expect_usable();
  const auto number = number_of_next_call();
  const bool on_cpu = call.device.kind == DeviceKind::cpu;
  auto operation = on_cpu ? data_->prepare(call, number) : device_->prepare(call, number);
  operation->device = call.device;
  operation->keep = std::move(keep);
  operation->call.name = {};
  operation->number = number;
  operation->rank_tree = &tree_;
  auto& record = control_->own_record(number);
  record.number = number;
  record.flags = call.flags.value_or(CallFlags{});
  record.weight = call.weight.value_or(0);
  record.memory = operation->memory_words;
  record.leaves = call.leaves.value_or(LeafInterval{});
  // Constructed in place: a copy would wait for the single bytes that have just been written.
  const auto& descriptor = *::new (&record.descriptor) CallDescriptor(descriptor_of(call));
  operation->signature = signature_of(descriptor, number, record.memory);
  calls_ = number;
  // Before enter(), which ends with a barrier: its stores would otherwise delay the reads of the
  // last rank to enter, for which all ranks wait.
  const auto now = ticks();
  recorder_.enter(number, descriptor, now);
  page_.begin_call(page_key(), number, static_cast<int>(record.descriptor.kind),
                   record.descriptor.name, now);
  control_->enter(number, operation->signature);
  queue_.push_back(operation);
  membership_.registry->count_pending(1);
  advance_all(now);
  return operation;
}

std::shared_ptr<Operation> Group::start_message(std::shared_ptr<MessageOperation> operation,
                                                std::shared_ptr<const void> keep) {
  operation->keep = std::move(keep);
  operation->is_call = false;
  operation->device = operation->message.device;
  operation->begun = true;
  messages_.push_back(operation);
  membership_.registry->count_pending(1);
  advance_all();
  return operation;
}

void Group::advance_all(std::optional<Ticks> now) {
  if (queue_.empty() && messages_.empty()) return;
  control_->poll();
  // Nothing can move before the others have entered the oldest call; this is the usual case
  // directly after this rank has entered it.
  if (messages_.empty() && !queue_.front()->begun && entered(*queue_.front()).lagging()) return;
  try {
    const bool is_whole = data_->begin_moving();
    if (!is_whole) {
      // A rank that has completed a call is no longer needed for it: the call can still succeed
      // here.
      const auto oldest = queue_.empty() ? kEveryCall : queue_.front()->number;
      if (const auto cause = reported_failure(oldest)) fail(*cause);
    }
    move_all(is_whole, now);
    data_->end_moving();
  } catch (const PeerError& error) {
    if (failure_) throw;
    fail({error.rank(), fmt::format("{}: {}", rank_in_words(error.rank()), error.what())});
  } catch (const SystemError& error) {
    fail({rank(), fmt::format("{}: {}", rank_in_words(rank()), error.what())});
  } catch (const UsageError& error) {
    fail({rank(), error.what()});
  }
}

void Group::move_all(bool is_whole, std::optional<Ticks> now) {
  bool may_begin = true;
  for (auto& operation : queue_) {
    if (operation->done) continue;
    if (!is_whole && operation != queue_.front()) break;
    if (!operation->begun) {
      if (!may_begin || entered(*operation).lagging()) break;
      if (operation->device.kind != DeviceKind::cpu) expect_nobody_left(*operation);
      begin(*operation, std::exchange(now, {}));
    }
    if (operation->done) continue;
    operation->recipe.advance();
    operation->done = operation->recipe.done();
    if (operation->done) operation->done_at = ticks();
    may_begin = operation->done || operation->recipe.awaited().last;
  }
  while (!queue_.empty() && queue_.front()->done) {
    const auto number = queue_.front()->number;
    if (queue_.front()->device.kind == DeviceKind::cpu) {
      data_->retire(*queue_.front(), /*is_last=*/number == calls_);
    } else {
      device_->retire(*queue_.front());
      last_device_call_ = number;
    }
    control_->complete(number);
    recorder_.complete(number, std::max(queue_.front()->begun_at, queue_.front()->done_at));
    page_.end_call(page_key(), number);
    queue_.front()->keep.reset();
    queue_.pop_front();
    membership_.registry->count_pending(-1);
  }
  for (auto message = messages_.begin(); is_whole && message != messages_.end();) {
    (*message)->recipe.advance();
    if (!(*message)->recipe.done()) {
      ++message;
      continue;
    }
    (*message)->done = true;
    if ((*message)->device.kind != DeviceKind::cpu) device_->retire(**message);
    (*message)->keep.reset();
    message = messages_.erase(message);
    membership_.registry->count_pending(-1);
  }
}

void Group::begin(CallOperation& operation, std::optional<Ticks> now) {
  operation.begun = true;
  operation.begun_at = now ? *now : ticks();
  const bool same_memory = expect_equal_calls(operation);
  const auto number = operation.number;
  if (operation.call.flags) {
    const auto& first = control_->record(0, number).flags;
    for (int rank = 0; rank < size(); ++rank) {
      operation.group_flags.add(rank, control_->record(rank, number).flags, first);
    }
  }
  if (operation.call.weight) {
    for (int rank = 0; rank < size(); ++rank) {
      operation.weight += control_->record(rank, number).weight;
    }
  }
  if (operation.call.leaves) {
    std::vector<LeafInterval> leaves;
    for (int rank = 0; rank < size(); ++rank) {
      leaves.push_back(control_->record(rank, number).leaves);
    }
    operation.own_tree = TreePlan::over(leaves);
  }
  operation.recipe = operation.device.kind == DeviceKind::cpu ? data_->begin(operation, same_memory)
                                                              : device_->begin(operation);
  operation.done = !operation.recipe;
  // A read of the counter takes a noticeable part of so small a call. Those of Ddp, which have
  // flags, are worth it: the advice on small buckets is computed from their durations.
  const bool is_timed =
      operation.call.flags ||
      std::max(operation.call.input.size(), operation.call.output.size()) > kSmallBytes;
  if (operation.done && is_timed) operation.done_at = ticks();
}

bool Group::expect_equal_calls(const CallOperation& operation) {
  const auto number = operation.number;
  const auto other = control_->find_other_signature(number, operation.signature);
  if (!other) return true;
  // A rank that has completed this call did not fail in it; it may have failed later.
  if (control_->counters().lags(*other, {Condition::Of::completed, number})) {
    if (const auto cause = reported_failure()) fail(*cause);
  }
  // Equal calls on different memory have different signatures too, so the records are compared. All
  // ranks compare the same records and therefore report the same.
  const auto& first = control_->record(0, number).descriptor;
  for (int rank = 1; rank < size(); ++rank) {
    if (control_->record(rank, number).descriptor == first) continue;
    fail({rank, fmt::format("the ranks of group {} make different calls: rank {} is in {}, rank "
                            "{} in {}; every rank must make the same calls in the same order",
                            options_.name, global_rank(0), call_in_words(0, number),
                            global_rank(rank), call_in_words(rank, number))});
  }
  return false;
}

Awaited Group::entered(const CallOperation& operation) const noexcept {
  return {.counters = &control_->counters(),
          .condition = {Condition::Of::entered, operation.number}};
}

Awaited Group::blocker_of(const Operation& operation) const noexcept {
  if (!operation.is_call) return operation.recipe.awaited();
  // Calls complete in order: the oldest incomplete call blocks the later ones.
  for (const auto& earlier : queue_) {
    if (earlier->done) continue;
    return earlier->begun ? earlier->recipe.awaited() : entered(*earlier);
  }
  return entered(static_cast<const CallOperation&>(operation));
}

}  // namespace lockstep
