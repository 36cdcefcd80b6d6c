// How the operations of a group go on: entered, begun when all ranks have come, advanced,
// completed.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/fabric/shm_engine_internal.h"

namespace lockstep {

void ShmEngine::try_advance() noexcept {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock || failure_) return;
  try {
    advance_all();
  } catch (const Error&) {
    // Kept as the group's failure: whoever uses that group next hears of it.
  }
}

std::uint64_t ShmEngine::number_of_next_call() {
  Wait wait;
  while (true) {
    const auto number = calls_ + 1;  // anew each time: threads take turns
    // Counters are looked up when the slots that were free then are used up: who looks takes the
    // line from its writer, and would make every call wait for N of them.
    if (number <= room_until_) return number;
    room_until_ = memory_.lines().lowest(Condition::Of::completed) + kMaxCallsInFlight;
    if (number <= room_until_) return number;
    // This call's slot was that call's.
    const Awaited room{.lines = &memory_.lines(),
                       .condition = {Condition::Of::completed, number - kMaxCallsInFlight}};
    advance_all();
    const auto lagging = room.lagging();
    if (!lagging) return number;
    // This rank itself is held up by what its oldest call awaits of another.
    const auto awaited = *lagging == rank() ? blocker_of(*queue_.front()) : room;
    if (const auto other = awaited.lagging()) wait_a_little(awaited, *other, wait);
  }
}

std::shared_ptr<ShmOperation> ShmEngine::start_call(const Call& call,
                                                    std::shared_ptr<const void> keep) {
  expect_usable();
  auto operation = std::make_shared<ShmOperation>();
  operation->keep = std::move(keep);
  const auto number = number_of_next_call();
  auto& own = operation->call;
  own.call = call;
  own.descriptor = descriptor_of(call);
  own.call.name = {};
  own.number = number;
  own.memory = &memory_;
  own.steps = &steps_;
  own.rounds = &rounds_;
  own.rank_tree = &tree_;
  own.largest_input = std::max(input_bytes(call, call.root, size()), call.input.size());
  own.is_inline = own.largest_input <= std::min(options_.inline_bytes, kMaxInlineBytes);
  const auto input = memory_.locate(call.input);
  // What can be joined where it lies soon costs less than a copy.
  if (joins_all(call.kind) && input.allocation >= 0 && own.largest_input > kMaxLibraryInlineBytes) {
    own.is_inline = false;
  }
  if (own.is_inline && !call.input.empty()) {
    std::memcpy(own.inline_slot(rank()), call.input.data(), call.input.size());
  }
  CallSlot slot{.number = number,
                .flags = call.flags.value_or(CallFlags{}),
                .weight = call.weight.value_or(0),
                .leaves = call.leaves.value_or(LeafInterval{}),
                .descriptor = own.descriptor};
  if (!own.is_inline) {
    slot.input = input;
    slot.output = memory_.locate(call.output);
  }
  calls_ = number;
  record_.enter(number, own.descriptor);
  own.mark = mark_of(own.descriptor, number, slot.input, slot.output);
  memory_.lines().enter(slot, own.mark);
  queue_.push_back(operation);
  membership_.progress->count_pending(1);
  advance_all();
  return operation;
}

std::shared_ptr<ShmOperation> ShmEngine::start_mail(ShmMail mail,
                                                    std::shared_ptr<const void> keep) {
  expect_usable();
  auto operation = std::make_shared<ShmOperation>();
  operation->keep = std::move(keep);
  operation->mail = mail;
  operation->is_call = false;
  operation->begun = true;
  operation->steps = mail.sends ? send_recipe(operation->mail) : receive_recipe(operation->mail);
  mails_.push_back(operation);
  membership_.progress->count_pending(1);
  advance_all();
  return operation;
}

void ShmEngine::advance_all() {
  if (queue_.empty() && mails_.empty()) return;
  try {
    memory_.begin_moving();
    if (memory_.given_up()) {
      if (const auto cause = reported_failure()) fail(*cause);
    }
    move_all();
    memory_.end_moving();
  } catch (const PeerError& error) {
    if (failure_) throw;
    fail({error.rank(), fmt::format("{}: {}", rank_in_words(error.rank()), error.what())});
  } catch (const UsageError& error) {
    fail({rank(), error.what()});
  }
}

void ShmEngine::move_all() {
  bool may_begin = true;
  for (auto& operation : queue_) {
    if (operation->done) continue;
    if (!operation->begun) {
      if (!may_begin || entered(*operation).lagging()) break;
      begin(*operation);
    }
    if (operation->done) continue;
    operation->steps.advance();
    operation->done = operation->steps.done();
    may_begin = operation->done || operation->steps.awaited().last;
  }
  while (!queue_.empty() && queue_.front()->done) {
    const auto number = queue_.front()->call.number;
    // Unless the next call is under way, and others read what it has brought.
    if (queue_.front()->call.is_inline && number == calls_) {
      prepare_next_slot(queue_.front()->call);
    }
    memory_.lines().complete(number);
    record_.complete(number);
    queue_.front()->keep.reset();
    queue_.pop_front();
    membership_.progress->count_pending(-1);
  }
  for (auto mail = mails_.begin(); mail != mails_.end();) {
    (*mail)->steps.advance();
    if (!(*mail)->steps.done()) {
      ++mail;
      continue;
    }
    (*mail)->done = true;
    (*mail)->keep.reset();
    mail = mails_.erase(mail);
    membership_.progress->count_pending(-1);
  }
}

void ShmEngine::begin(ShmOperation& operation) {
  auto& call = operation.call;
  operation.begun = true;
  const bool symmetric = expect_equal_calls(operation);
  const auto& lines = memory_.lines();
  if (call.call.flags) {
    const auto& first = lines.slot(0, call.number).flags;
    for (int rank = 0; rank < size(); ++rank) {
      operation.group_flags.add(rank, lines.slot(rank, call.number).flags, first);
    }
  }
  if (call.call.weight) {
    for (int rank = 0; rank < size(); ++rank) call.weight += lines.slot(rank, call.number).weight;
  }
  if (call.call.leaves) {
    std::vector<LeafInterval> leaves;
    for (int rank = 0; rank < size(); ++rank)
      leaves.push_back(lines.slot(rank, call.number).leaves);
    call.own_tree = TreePlan::over(leaves);
  }
  for (int rank = 0; rank < size() && !symmetric; ++rank) {
    // One rank's input lies in library memory alone: then all go through the staging areas.
    if (lines.slot(rank, call.number).input.allocation >= 0) call.is_inline = false;
  }
  if (call.is_inline && takes_one_shot(call.call)) {
    take_one_shot(call);
    operation.done = true;
    return;
  }
  for (int rank = 0; rank < size() && !call.is_inline; ++rank) {
    const auto& slot = lines.slot(symmetric ? this->rank() : rank, call.number);
    call.inputs.push_back(memory_.resolve(rank, slot.input));
    call.outputs.push_back(memory_.resolve(rank, slot.output));
  }
  operation.steps = recipe_for(call);
}

void ShmEngine::fetch_what_arrived() noexcept {
  if (queue_.empty() || queue_.front()->begun || !queue_.front()->call.is_inline) return;
  auto& operation = *queue_.front();
  if (size() > std::numeric_limits<decltype(operation.fetched)>::digits) return;
  const auto awaited = entered(operation);
  const bool one_shot = takes_one_shot(operation.call.call);
  for (int i = 1; i < size(); ++i) {
    const int other = (rank() + i) % size();  // each begins elsewhere: they would queue for a line
    const auto bit = std::uint64_t{1} << other;
    if ((operation.fetched & bit) != 0 || awaited.lags(other)) continue;
    operation.fetched |= bit;
    fetch_ahead(operation.call, other, one_shot);
  }
}

// Whether every rank does all of an inline call by itself, or each a part for all.
bool ShmEngine::takes_one_shot(const Call& call) const noexcept {
  return !joins_all(call.kind) || call.input.size() <= one_shot_bytes_.value_or(kMaxInlineBytes);
}

bool ShmEngine::expect_equal_calls(const ShmOperation& operation) {
  const auto& lines = memory_.lines();
  const auto number = operation.call.number;
  for (int other = 0; other < size(); ++other) {
    // The call's own mark: the line holds that of a later call when this rank has begun more.
    if (lines.mark(other, number) == operation.call.mark) continue;
    // Who has completed this call has not given it up, whatever came later.
    if (lines.lags(other, {Condition::Of::completed, number})) {
      if (const auto cause = reported_failure()) fail(*cause);
    }
    // Equal calls on memory at different places have different marks too: the slots decide. All
    // ranks look at the same slots, so all of them give the same report.
    const auto& first = lines.slot(0, number).descriptor;
    for (int rank = 1; rank < size(); ++rank) {
      if (lines.slot(rank, number).descriptor == first) continue;
      fail({rank, fmt::format("the ranks of group {} make different calls: rank {} is in {}, rank "
                              "{} in {}; every rank must make the same calls in the same order",
                              options_.name, global_rank(0), call_in_words(0, number),
                              global_rank(rank), call_in_words(rank, number))});
    }
    return false;
  }
  return true;
}

Awaited ShmEngine::entered(const ShmOperation& operation) const noexcept {
  return {.lines = &memory_.lines(), .condition = {Condition::Of::entered, operation.call.number}};
}

Awaited ShmEngine::blocker_of(const ShmOperation& operation) const noexcept {
  if (!operation.is_call) return operation.steps.awaited();
  // Calls finish in order: the oldest that waits holds up the rest.
  for (const auto& earlier : queue_) {
    if (earlier->done) continue;
    return earlier->begun ? earlier->steps.awaited() : entered(*earlier);
  }
  return entered(operation);
}

}  // namespace lockstep
