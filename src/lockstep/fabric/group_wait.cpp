// How a rank waits for another rank, and what it does when that rank does not arrive.
//
// It spins first: a rank on its own core arrives within microseconds. Then it yields: another
// thread may need this core. Then it sleeps until the other rank wakes it. A rank that shares its
// core with other ranks of the group does not spin and yields less: it would use the time slice
// that the awaited rank needs.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 2000;
// Of a plane that polls the network: each poll is a system call.
constexpr std::chrono::microseconds kPollTime{50};
constexpr int kYields = 50;
// Waking all ranks of a group takes longer than spinning, above all on virtual machines. Yielding
// lasts longer than that. Otherwise ranks that fell asleep once would find each other asleep in
// every later call.
constexpr std::chrono::milliseconds kYieldTime{1};
constexpr std::chrono::milliseconds kCycleReport{500};
constexpr std::chrono::milliseconds kLongSleep{50};  // a lost rank is detected after this time
// This rank looks at the others much more often. A longer interval means that it was itself stopped
// (SIGSTOP, Ctrl-Z): that time was no waiting, and a resumed rank must not blame the others for it.
constexpr std::chrono::milliseconds kLongestInterval{500};
constexpr std::chrono::microseconds kShortSleep{200};  // if other groups may need this rank too
constexpr std::chrono::microseconds kDeviceSleep{50};  // a device wakes no thread

// Releases the lock while this thread sleeps, so that other threads of this rank can use the group:
// the awaited rank may itself wait for an operation of one of them.
class Unlocked {
 public:
  explicit Unlocked(std::mutex& mutex) : mutex_(mutex) { mutex_.unlock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() { mutex_.lock(); }

 private:
  std::mutex& mutex_;
};

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // as long as pause on x86; yield is a no-op on most cores
#endif
}

// The end of an operation's work on the device, which needs every rank's part of the call.
Awaited end_of(Operation& operation) {
  Awaited awaited{.local = operation.device_result()};
  if (operation.is_call) awaited.condition.value = static_cast<CallOperation&>(operation).number;
  return awaited;
}

}  // namespace

void Group::wait_for(Operation& operation, std::optional<Deadline> deadline) {
  Wait wait{deadline};
  while (!operation.done) {
    expect_usable();
    advance_all();
    if (operation.done) return;
    const auto awaited = blocker_of(operation);
    if (const auto lagging = awaited.lagging()) wait_a_little(awaited, *lagging, wait);
  }
}

void Group::make_wait(Operation& operation, void* stream, std::optional<Deadline> deadline) {
  const Lock lock(mutex_);
  wait_for(operation, deadline);
  if (operation.device.kind == DeviceKind::cpu) return;
  expect_usable();
  try {
    operation.device_result()->make_wait(stream);
  } catch (const SystemError& error) {
    fail({rank(), fmt::format("{}: {}", rank_in_words(rank()), error.what())});
  }
}

void Group::synchronize(Operation& operation, std::optional<Deadline> deadline) {
  const Lock lock(mutex_);
  wait_for(operation, deadline);
  if (operation.device.kind == DeviceKind::cpu) return;
  Wait wait{deadline};
  const auto awaited = end_of(operation);
  while (const auto lagging = awaited.lagging()) {
    expect_usable();
    wait_a_little(awaited, *lagging, wait);
  }
  expect_result();
}

// The work of a failed group ends without its result, also on a rank that has not failed yet.
void Group::expect_result() {
  expect_usable();
  if (const auto cause = reported_failure()) fail(*cause);
}

// Called for an operation that is done for the host.
bool Group::has_ended(Operation& operation) {
  if (operation.device.kind == DeviceKind::cpu) return true;
  const bool ended = !operation.device_result()->lagging();
  if (ended) {
    expect_result();
  } else {
    expect_usable();
    check_sometimes(end_of(operation));
  }
  return ended;
}

// For loops around done(): they must detect a lost rank too, but without a system call each time.
void Group::check_sometimes(const Awaited& awaited) {
  constexpr std::chrono::milliseconds kCheckInterval{20};
  const auto now = Clock::now();
  if (now - last_check_ <= kCheckInterval) return;
  last_check_ = now;
  if (const auto cause = find_failure(awaited)) fail(*cause);
  membership_.registry->groups()->advance_others(*this);
}

void Group::wait_a_little(const Awaited& awaited, int rank, Wait& wait) {
  const bool alone = membership_.registry->pending() <= static_cast<int>(queue_.size());
  const bool polls = control_->polls();
  const auto spins_until = polls ? Clock::now() + kPollTime : Clock::time_point();
  for (int i = oversubscribed_ ? kSpins : 0; i < kSpins; ++i) {
    if (!awaited.lagging()) return;
    if (polls && Clock::now() >= spins_until) break;
    control_->poll();
    if (!queue_.empty() && !queue_.front()->begun &&
        queue_.front()->device.kind == DeviceKind::cpu) {
      data_->look_ahead(*queue_.front());
    }
    pause_core();
  }
  const auto yields_until =
      Clock::now() + (oversubscribed_ || !alone ? Clock::duration() : kYieldTime);
  for (int i = 0; i < kYields || Clock::now() < yields_until; ++i) {
    if (!awaited.lags(rank)) return;
    control_->poll();
    ::sched_yield();
  }
  if (!wait.last_look) wait.last_look = Clock::now();
  if (!alone) membership_.registry->groups()->advance_others(*this);
  auto until = Deadline::after(alone ? Clock::duration(kLongSleep) : Clock::duration(kShortSleep));
  if (wait.deadline) until = std::min(until, *wait.deadline);
  control_->set_waits_in(queue_.empty() ? 0 : queue_.front()->number);
  // The awaited word is the group's, the caller's, or that of the oldest call that is not done
  // (blocker_of). Another thread may complete and drop that call while this one sleeps.
  const auto blocking = std::find_if(queue_.begin(), queue_.end(),
                                     [](const auto& operation) { return !operation->done; });
  const auto keep = blocking == queue_.end() ? nullptr : *blocking;
  {
    const Unlocked meanwhile(mutex_);
    if (awaited.local == nullptr) {
      control_->sleep(awaited, rank, until);
    } else {
      std::this_thread::sleep_for(kDeviceSleep);
    }
  }
  expect_usable();
  if (awaited.lags(rank)) return check_others(awaited, wait);
  control_->set_waits_in(0);
}

void Group::check_others(const Awaited& awaited, Wait& wait) {
  if (const auto cause = find_failure(awaited)) fail(*cause);
  const auto lagging = awaited.lagging();
  if (!lagging) return;
  const auto now = Clock::now();
  wait.waited += std::min<Clock::duration>(now - *wait.last_look, kLongestInterval);
  wait.last_look = now;
  const auto seconds = std::chrono::duration<double>(wait.waited).count();
  if (!wait.reported && wait.waited >= options_.stall_report) {
    wait.reported = true;
    log_.warning(fmt::format("waiting for {} in {} of group {}, {:.0f} s so far; {}",
                             awaited_in_words(awaited, *lagging), what_waits(), options_.name,
                             seconds, last_call_in_words(*lagging)));
  }
  const auto cycle = wait.waited >= kCycleReport
                         ? membership_.registry->groups()->find_cycle(*this, global_rank(*lagging))
                         : std::nullopt;
  if (cycle && !std::exchange(wait.cycle_reported, true)) {
    log_.warning(fmt::format(
        "deadlock: this rank waits in {} of group {} for {}, which waits for this rank in {}. One "
        "of the two ranks omits a call or makes an extra call",
        what_waits(), options_.name, rank_in_words(*lagging), *cycle));
  }
  const bool late = wait.deadline ? wait.deadline->expired() : wait.waited >= options_.timeout;
  if (!late) return;
  // Between hosts, the awaited rank may itself wait for one whose process is stopped, which is then
  // the cause.
  int culprit = *lagging;
  for (int other = 0; other < size() && !queue_.empty(); ++other) {
    const Condition completed{Condition::Of::completed, queue_.front()->number};
    if (!control_->counters().lags(other, completed)) continue;
    if (control_->describe(other).find("stopped by a signal") != std::string::npos) culprit = other;
  }
  fail({culprit,
        fmt::format(
            "{} of group {} timed out after {:.1f} s, waiting for {}: {}", what_waits(),
            options_.name, seconds,
            culprit == *lagging ? awaited_in_words(awaited, culprit) : rank_in_words(culprit),
            cycle ? "it waits for this rank in " + *cycle : last_call_in_words(culprit))});
}

std::optional<std::string> Group::awaits_this_rank(int global_rank) {
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock || failure_) return std::nullopt;
  const auto& ranks = membership_.global_ranks;
  const auto found = std::find(ranks.begin(), ranks.end(), global_rank);
  if (found == ranks.end()) return std::nullopt;
  const auto other = static_cast<int>(found - ranks.begin());
  control_->poll();  // needed because a group without operations of this rank is not advanced
  const auto number = control_->waits_in(other);
  if (number <= calls_) return std::nullopt;
  // Between hosts, its header may arrive later, through another rank.
  if (control_->counters().lags(other, {Condition::Of::entered, number})) return std::nullopt;
  return fmt::format("{} of group {}", call_in_words(other, number), options_.name);
}

// The failure that another rank has published.
std::optional<Cause> Group::reported_failure(std::uint64_t number) const {
  for (int other = 0; other < size(); ++other) {
    if (other == rank() || control_->standing(other) != Standing::failed) continue;
    if (!control_->counters().lags(other, {Condition::Of::completed, number})) continue;
    const auto cause = control_->cause(other);
    return Cause{cause.culprit, cause.culprit == rank()
                                    ? fmt::format("rank {} has given up on this rank: {}",
                                                  global_rank(other), cause.text)
                                    : cause.text};
  }
  return std::nullopt;
}

bool Group::has_completed_front(int rank) const noexcept {
  return !queue_.empty() &&
         !control_->counters().lags(rank, {Condition::Of::completed, queue_.front()->number});
}

// A failure that another rank has published, or a rank that has ended or left and therefore can
// never do what is awaited. While the group is created, a rank that has ended after it entered
// counts too: an awaited rank may have noticed that before it could tell anything to this group. It
// also counts if ranks relay what others publish: it no longer does.
std::optional<Cause> Group::find_failure(const Awaited& awaited) const {
  if (auto cause = reported_failure()) return cause;
  const bool is_needed = control_->relays() || (!queue_.empty() && queue_.front()->number == 1);
  const auto is_awaited = [&](int other) {
    return awaited.lags(other) && (awaited.word == nullptr || other == awaited.peer);
  };
  std::optional<int> leaver;
  for (int other = 0; other < size(); ++other) {
    if (other == rank() || (!is_awaited(other) && !is_needed)) continue;
    // Reads "gone" before "left": a rank that leaves and then ends counts as left.
    const bool dead = control_->is_gone(other);
    const bool left = control_->standing(other) == Standing::left;
    // The device work of a rank has ended before it leaves, except of calls that it had not begun.
    if (left && awaited.local != nullptr && !has_left_before(other, awaited.condition.value)) {
      continue;
    }
    // Between hosts, what a rank has sent before it left may still be on the way.
    const bool has_messages = awaited.word != nullptr && !messages_.empty();
    const bool has_completed = has_completed_front(other);
    if (left && !has_messages && has_completed) continue;
    // A rank that left during the oldest call does not relay what others publish about it.
    const bool left_early = left && control_->relays() && !queue_.empty() && !has_completed;
    if ((!dead && !left) || (!is_awaited(other) && (left ? !left_early : !is_needed))) continue;
    if (!left) {
      return Cause{other, fmt::format("{} {} while others are in {} of group {}: {}; see "
                                      "its own output for the reason",
                                      rank_in_words(other), control_->gone_in_words(other),
                                      what_waits(), options_.name, last_call_in_words(other))};
    }
    // A rank may have left because another one has ended; then that one is the cause.
    if (!leaver) leaver = other;
  }
  if (!leaver) return std::nullopt;
  return departure_of(*leaver);
}

// Its counters do not change any more once it has left.
bool Group::has_left_before(int rank, std::uint64_t number) const noexcept {
  return control_->standing(rank) == Standing::left &&
         control_->counters().lags(rank, {Condition::Of::completed, number});
}

Cause Group::departure_of(int rank) const {
  return {rank,
          fmt::format("rank {} has left group {} while others are in {}: {}", global_rank(rank),
                      options_.name, what_waits(), last_call_in_words(rank))};
}

// What this rank would enqueue on a device would wait for a rank that has left.
void Group::expect_nobody_left(const CallOperation& operation) {
  for (int other = 0; other < size(); ++other) {
    if (other != rank() && has_left_before(other, operation.number)) fail(departure_of(other));
  }
}

std::string Group::call_in_words(int rank, std::uint64_t number) const {
  return fmt::format("call {} {}", number, to_string(control_->record(rank, number).descriptor));
}

std::string Group::last_call_in_words(int rank) const {
  const auto number = control_->counters().value(rank, Condition::Of::entered);
  if (number == 0) return "it has entered no call yet";
  const bool complete = control_->counters().value(rank, Condition::Of::completed) >= number;
  return fmt::format("it last entered {}, which is {}", call_in_words(rank, number),
                     complete ? "complete" : "not complete");
}

std::string Group::rank_in_words(int rank) const {
  return fmt::format("rank {} ({})", global_rank(rank), control_->describe(rank));
}

std::string Group::awaited_in_words(const Awaited& awaited, int rank) const {
  return (awaited.local != nullptr ? "the device of " : "") + rank_in_words(rank);
}

std::string Group::what_waits() const {
  for (const auto& operation : queue_) {
    if (!operation->done) return call_in_words(rank(), operation->number);
  }
  if (messages_.empty()) return call_in_words(rank(), calls_);
  const auto& first = *messages_.front();
  return fmt::format("a {} rank {} with tag {}", first.sends ? "send to" : "receive from",
                     global_rank(first.message.peer), first.message.tag);
}

}  // namespace lockstep
