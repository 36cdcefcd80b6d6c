// The work that a group has enqueued on a device: kept until its end, watched by deadlines, and
// ended without a result if the group has failed or this rank leaves.
#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/gpu/device_plane_internal.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::microseconds kPoll{50};
constexpr milliseconds kReleaseTime{300};  // a failure is reported within a second
constexpr milliseconds kPatience{50};

}  // namespace

void DeviceDataPlane::begin_replay(void* stream) {
  if (!is_connected_.load()) return;  // no call was captured
  const auto selected = context_->scope();
  context_->make_wait(stream, context_->record(context_->stream()).get());
}

void DeviceDataPlane::note_replay(void* stream) {
  if (!is_connected_.load()) return;
  const auto selected = context_->scope();
  drop_ended();
  auto end = context_->record(stream);
  context_->make_wait(context_->stream(), end.get());
  add_outstanding({.event = std::move(end),
                   .keep = nullptr,
                   .deadline = Deadline::after(timeout_),
                   .label = {.kind = Label::Kind::replay, .number = ++replays_}});
}

// The tensors of a captured call belong to the graph.
void DeviceDataPlane::retire(Operation& operation) noexcept {
  auto& result = static_cast<EventResult&>(*operation.device_result());
  if (result.is_captured()) return;
  Outstanding own{.event = result.event(),
                  .keep = std::move(operation.keep),
                  .deadline = Deadline::after(timeout_)};
  if (operation.is_call) {
    const auto& call = static_cast<const DeviceCall&>(operation);
    // The call itself no longer has its name.
    own.label = {.number = call.number,
                 .call = control_.record(membership_.rank, call.number).descriptor};
  } else {
    auto& message = static_cast<DeviceMessage&>(operation);
    own.label = {.kind = Label::Kind::message,
                 .number = static_cast<std::uint64_t>(message.message.tag)};
    own.keep = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<std::byte>>>(
        std::move(own.keep), message.pinned);
  }
  add_outstanding(std::move(own));
}

void DeviceDataPlane::add_outstanding(Outstanding&& own) noexcept {
  bool wakes = false;
  {
    const std::lock_guard lock(outstanding_mutex_);
    outstanding_.push_back(std::move(own));
    has_new_work_ = true;
    wakes = watcher_ != nullptr && !is_watched_;
    is_watched_ = is_watched_ || wakes;
  }
  if (wakes) watcher_->wake();
}

std::string DeviceDataPlane::Label::words() const {
  if (kind == Kind::message) return fmt::format("a message with tag {}", number);
  if (kind == Kind::replay) return fmt::format("replay {} of a CUDA graph", number);
  return fmt::format("call {} {}", number, to_string(call));
}

// Memory is released without the lock: its owner may be LibTorch's allocator.
void DeviceDataPlane::drop_ended() noexcept {
  std::vector<Outstanding> ended;
  const std::lock_guard lock(outstanding_mutex_);
  while (!outstanding_.empty()) {
    bool passed = false;
    const auto status = context_->functions().query_event(outstanding_.front().event.get(), passed);
    if (!status.ok()) note_failure({membership_.rank, status.text()});
    if (!status.ok() || !passed) break;
    ended.push_back(std::move(outstanding_.front()));
    outstanding_.pop_front();
  }
}

bool DeviceDataPlane::try_cut_off() noexcept {
  const auto limit = Deadline::after(kReleaseTime);
  // Work for which all ranks have done their part ends by itself.
  const auto patience = Deadline::after(has_lost_rank() ? milliseconds(0) : kPatience);
  while (!is_idle() && !patience.expired()) std::this_thread::sleep_for(kPoll);
  while (!release() && !limit.expired()) std::this_thread::sleep_for(kPoll);
  return is_idle() && (!transport_ || transport_->expect_privacy(limit));
}

void DeviceDataPlane::cut_off() noexcept {
  if (!is_open_.load()) return;
  has_leftovers_ = !try_cut_off();
  if (!has_leftovers_) return;
  log_.warning(
      fmt::format("work of the failed group {} is still enqueued on a GPU and may write to its "
                  "registered memory: allocate new memory for a new group",
                  group_name_));
}

void DeviceDataPlane::leave(const Watch& watch) noexcept {
  if (!is_open_.load()) return;
  try {
    const auto limit = Deadline::after(timeout_);
    while (!context_->is_idle()) {
      watch();
      if (limit.expired()) return cut_off();
      std::this_thread::sleep_for(kPoll);
    }
    if (transport_) transport_->leave(limit, watch);
  } catch (const Error&) {
    cut_off();
  }
}

// outstanding_mutex_ is locked.
const DeviceDataPlane::Outstanding* DeviceDataPlane::oldest_outstanding() noexcept {
  for (const auto& operation : outstanding_) {
    bool passed = false;
    const auto status = context_->functions().query_event(operation.event.get(), passed);
    if (!status.ok() || !passed) return &operation;
  }
  return nullptr;
}

std::optional<Deadline> DeviceDataPlane::next_deadline() noexcept {
  const std::lock_guard lock(outstanding_mutex_);
  const auto* const oldest = oldest_outstanding();
  return oldest == nullptr ? std::nullopt : std::optional(oldest->deadline);
}

bool DeviceDataPlane::may_sleep() noexcept {
  const std::lock_guard lock(outstanding_mutex_);
  is_watched_ = std::exchange(has_new_work_, false);
  return !is_watched_;
}

void DeviceDataPlane::extend_deadlines(std::chrono::nanoseconds time) noexcept {
  const std::lock_guard lock(outstanding_mutex_);
  for (auto& operation : outstanding_) {
    operation.deadline = Deadline(operation.deadline.at() + time);
  }
}

std::optional<Cause> DeviceDataPlane::published_failure() const {
  for (int rank = 0; rank < membership_.size(); ++rank) {
    if (rank == membership_.rank || control_.standing(rank) != Standing::failed) continue;
    auto cause = control_.cause(rank);
    if (cause.culprit == membership_.rank) {
      cause.text =
          fmt::format("rank {} has given up on this rank: {}",
                      parts_.peers[static_cast<std::size_t>(rank)].global_rank, cause.text);
    }
    return cause;
  }
  return std::nullopt;
}

// A rank whose process has ended, or that has left the group without its part of a call.
std::optional<Cause> DeviceDataPlane::find_lost_rank(const Label& label) const {
  for (const auto& peer : watched_peers_) {
    pollfd watched{peer.process->number(), POLLIN, 0};
    if (::poll(&watched, 1, 0) <= 0 || control_.standing(peer.rank) == Standing::left) continue;
    const auto global_rank = parts_.peers[static_cast<std::size_t>(peer.rank)].global_rank;
    return Cause{
        peer.rank,
        fmt::format("rank {} ({}) has ended while others have enqueued {} of group {} on a "
                    "GPU; see its own output for the reason",
                    global_rank, control_.describe(peer.rank), label.words(), group_name_)};
  }
  if (label.kind != Label::Kind::call) return std::nullopt;
  for (int rank = 0; rank < membership_.size(); ++rank) {
    if (rank == membership_.rank || control_.standing(rank) != Standing::left) continue;
    if (!control_.counters().lags(rank, {Condition::Of::completed, label.number})) continue;
    return Cause{
        rank,
        fmt::format("rank {} has left group {} without its part of {}, which others have enqueued "
                    "on a GPU",
                    parts_.peers[static_cast<std::size_t>(rank)].global_rank, group_name_,
                    label.words())};
  }
  return std::nullopt;
}

std::optional<Cause> DeviceDataPlane::find_cause() noexcept {
  try {
    std::unique_lock lock(outstanding_mutex_);
    const auto* const oldest = oldest_outstanding();
    if (oldest == nullptr) return std::nullopt;
    const auto label = oldest->label;
    const auto deadline = oldest->deadline;
    lock.unlock();
    if (auto cause = published_failure()) return cause;
    if (auto cause = find_lost_rank(label)) return cause;
    if (deadline.expired()) {
      const int lagging = transport_->lagging();
      const auto global_rank = parts_.peers[static_cast<std::size_t>(lagging)].global_rank;
      return Cause{
          lagging,
          fmt::format("{} of group {} has not ended on the GPU after {:.1f} s, waiting "
                      "for the device of rank {} ({})",
                      label.words(), group_name_, std::chrono::duration<double>(timeout_).count(),
                      global_rank, control_.describe(lagging))};
    }
    return transport_ ? transport_->find_error() : std::nullopt;
  } catch (const std::exception& error) {
    return Cause{membership_.rank, error.what()};
  }
}

void DeviceDataPlane::fail(const Cause& cause) noexcept {
  note_failure(cause);
  // Before the release: no other rank may take the result of released work for a good one.
  if (claim_publication()) {
    control_.fail(cause);
    host_.give_up();
  }
  (void)release();
}

bool DeviceDataPlane::release() noexcept {
  if (!is_open_.load()) return true;
  if (transport_) transport_->release_waits();
  return is_idle();
}

bool DeviceDataPlane::has_lost_rank() const noexcept {
  for (int rank = 0; rank < membership_.size(); ++rank) {
    if (rank != membership_.rank && control_.is_gone(rank)) return true;
  }
  return false;
}

bool DeviceDataPlane::is_idle() noexcept {
  try {
    return context_->is_idle();
  } catch (const Error& error) {
    note_failure({membership_.rank, error.what()});
    return true;  // a device that has failed executes nothing
  }
}

}  // namespace lockstep
