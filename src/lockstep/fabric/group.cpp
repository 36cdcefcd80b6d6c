#include "lockstep/fabric/group.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/group_making_internal.h"

namespace lockstep {
namespace {

void expect_length(const Message& message, std::size_t bytes) {
  if (message.count >= 0 &&
      static_cast<std::size_t>(message.count) * bytes_of(message.dtype) == bytes) {
    return;
  }
  throw UsageError(fmt::format("a message of {} × {} does not match its span of {} bytes",
                               message.count, to_string(message.dtype), bytes));
}

}  // namespace

Group::Group(Membership membership, Planes planes, const GroupOptions& options, Connect connect)
    : membership_(std::move(membership)),
      options_(options),
      connect_(std::move(connect)),
      reason_(std::move(planes.reason)),
      log_({.rank = membership_.global_ranks[static_cast<std::size_t>(membership_.rank)]}),
      control_(std::move(planes.control)),
      data_(std::move(planes.data)),
      device_(std::move(planes.device)),
      tree_(TreePlan::over_ranks(size())),
      uses_cpu_memory_(!data_->refusal_of({})) {
  control_->set_standing(Standing::present);
  membership_.registry->groups()->add(*this);
  try {
    // Ranks with different settings would access each other's data at wrong addresses.
    const auto name = fmt::format("group made, {}", data_->settings());
    wait(*start({.kind = Collective::barrier, .name = name}, nullptr), std::nullopt);
    oversubscribed_ = control_->shares_cores();
    data_->tune(*this);
  } catch (...) {
    membership_.registry->groups()->remove(*this);
    throw;
  }
}

Group::~Group() {
  membership_.registry->groups()->remove(*this);
  membership_.registry->count_pending(-static_cast<int>(queue_.size() + messages_.size()));
  if (failure_) return;
  if (device_) {
    // The others may still need the device work of this rank: it has not left before that has
    // ended.
    device_->leave([&] {
      control_->poll();
      if (const auto cause = reported_failure()) throw PeerError(cause->culprit, cause->text);
      for (int other = 0; other < size(); ++other) {
        if (other == rank()) continue;
        if (has_left_before(other, last_device_call_)) throw PeerError(other, "it has left");
        if (!control_->is_gone(other)) continue;
        if (control_->standing(other) != Standing::left) throw PeerError(other, "it has ended");
      }
    });
  }
  control_->set_standing(Standing::left);
  // Other ranks may still write to the memory of a call that is not complete.
  if (queue_.empty()) return;
  const bool others_may_have_begun =
      std::any_of(queue_.begin(), queue_.end(), [&](const auto& operation) {
        return operation->device.kind != DeviceKind::cpu && !entered(*operation).lagging();
      });
  if (others_may_have_begun) device_->cut_off();
  try {
    data_->cut_off();
  } catch (const Error& error) {
    log_.warning(
        fmt::format("group {} was destroyed during {}; other ranks may still write to its "
                    "registered memory: {}",
                    options_.name, call_in_words(rank(), calls_), error.what()));
  }
}

int Group::global_rank(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw UsageError(
        fmt::format("rank {} is invalid: the group has ranks 0 to {}", rank, size() - 1));
  }
  return membership_.global_ranks[static_cast<std::size_t>(rank)];
}

std::shared_ptr<Operation> Group::start(const Call& call, std::shared_ptr<const void> keep) {
  expect_valid(call, rank(), size());
  expect_usable_memory(call.device);
  if (call.device.kind != DeviceKind::cpu) device_->connect(*this, call.device);
  const Lock lock(mutex_);
  return start_call(call, std::move(keep));
}

std::shared_ptr<Operation> Group::send(const Message& message, std::span<const std::byte> bytes,
                                       std::shared_ptr<const void> keep) {
  (void)global_rank(message.peer);
  expect_length(message, bytes.size());
  expect_usable_memory(message.device);
  const Lock lock(mutex_);
  expect_usable();
  return start_message(message.device.kind == DeviceKind::cpu ? data_->send(message, bytes)
                                                              : device_->send(message, bytes),
                       std::move(keep));
}

std::shared_ptr<Operation> Group::receive(const Message& message, std::span<std::byte> bytes,
                                          std::shared_ptr<const void> keep) {
  (void)global_rank(message.peer);
  expect_length(message, bytes.size());
  expect_usable_memory(message.device);
  const Lock lock(mutex_);
  expect_usable();
  return start_message(message.device.kind == DeviceKind::cpu ? data_->receive(message, bytes)
                                                              : device_->receive(message, bytes),
                       std::move(keep));
}

std::optional<std::string> Group::refusal_of(const Device& device) const {
  if (device.kind == DeviceKind::cpu || !device_) return data_->refusal_of(device);
  return device_->refusal_of(device);
}

void Group::expect_usable_memory(const Device& device) const {
  if (device.kind == DeviceKind::cpu && uses_cpu_memory_) return;
  if (const auto refusal = refusal_of(device)) {
    throw UsageError(fmt::format("backend {} of group {} does not support memory on {}: {}", kind(),
                                 options_.name, to_string(device), *refusal));
  }
}

void Group::advance() {
  const Lock lock(mutex_);
  expect_usable();
  advance_all();
}

bool Group::done(Operation& operation) {
  const Lock lock(mutex_);
  if (operation.done) return has_ended(operation);
  expect_usable();
  advance_all();
  if (operation.done) return has_ended(operation);
  check_sometimes(blocker_of(operation));
  return false;
}

void Group::wait(Operation& operation, std::optional<Deadline> deadline) {
  const Lock lock(mutex_);
  wait_for(operation, deadline);
}

std::shared_ptr<RegisteredMemory> Group::allocate(std::size_t bytes, const Device& device) {
  expect_usable_memory(device);
  constexpr std::size_t kMostBytes = std::size_t{1} << 46;  // over all ranks: mappable addresses
  if (bytes > kMostBytes / static_cast<std::size_t>(size())) {
    throw UsageError(
        fmt::format("cannot allocate {} bytes for each of {} ranks: the total exceeds "
                    "the address space of a process",
                    bytes, size()));
  }
  // Before the lock: it allocates CPU memory.
  if (device.kind != DeviceKind::cpu) device_->connect(*this, device);
  const std::lock_guard one_at_a_time(allocating_);
  if (device.kind != DeviceKind::cpu) return device_->allocate(*this, bytes);
  const Lock lock(mutex_);
  const Call call{
      .kind = Collective::allocate, .count = static_cast<std::int64_t>(bytes), .device = device};
  wait_for(*start_call(call, nullptr), std::nullopt);
  // A rank that has entered the next call has its memory.
  const Awaited next{.counters = &control_->counters(),
                     .condition = {Condition::Of::entered, calls_ + 1}};
  const Watch watch = [&] {
    control_->poll();
    if (const auto cause = find_failure(next)) fail(*cause);
  };
  std::shared_ptr<RegisteredMemory> memory;
  try {
    memory = data_->allocate(bytes, device, Deadline::after(options_.timeout), watch);
  } catch (const PeerError&) {
    throw;
  } catch (const Error& error) {
    const auto* system = dynamic_cast<const SystemError*>(&error);
    const int number = system != nullptr ? system->error_number() : 0;
    if (number == EPIPE || number == ECONNRESET) watch_briefly(watch);
    fail({0, fmt::format("{} failed to provide the memory of {} of group {}: {}", rank_in_words(0),
                         call_in_words(rank(), calls_), options_.name, error.what())});
  }
  wait_for(*start_call({.kind = Collective::barrier, .name = "allocated"}, nullptr), std::nullopt);
  return memory;
}

std::optional<CallRecord> Group::next_call_of(int rank) {
  const Lock lock(mutex_);
  expect_usable();
  control_->poll();
  const auto next = calls_ + 1;
  if (control_->counters().lags(rank, {Condition::Of::entered, next})) return std::nullopt;
  return control_->record(rank, next);
}

std::uint64_t Group::num_entered(int rank) {
  const Lock lock(mutex_);
  control_->poll();
  return control_->counters().value(rank, Condition::Of::entered);
}

void Group::enqueue_replay(void (DevicePlane::*part)(void* stream), void* stream) {
  if (!device_) return;
  const Lock lock(mutex_);
  expect_usable();
  try {
    (*device_.*part)(stream);
  } catch (const SystemError& error) {
    fail({rank(), fmt::format("{}: {}", rank_in_words(rank()), error.what())});
  }
}

void Group::expect_usable() {
  if (!failure_) {
    if (!device_ || !device_->has_failed()) return;
    fail(device_->failure().value());
  }
  throw PeerError(global_rank(failure_->culprit),
                  fmt::format("group {} is unusable after a failure: {}. Create a new group to "
                              "continue",
                              options_.name, failure_->text));
}

void Group::fail(const Cause& cause) {
  failure_ = cause;
  data_->end_moving();
  if (!device_ || device_->claim_publication()) control_->fail(cause);
  data_->give_up();
  if (device_) device_->cut_off();
  membership_.registry->count_pending(-static_cast<int>(queue_.size() + messages_.size()));
  queue_.clear();
  messages_.clear();
  write_flight_recorder(cause.text);
  data_->cut_off();
  throw PeerError(global_rank(cause.culprit), cause.text);
}

void Group::write_flight_recorder(const std::string& cause) const noexcept {
  if (!membership_.run_dir) return;
  const auto own = global_rank(rank());
  auto group = options_.name;
  std::replace(group.begin(), group.end(), '/', '-');
  const auto path = fmt::format("{}/flight-{}-rank{}.json", *membership_.run_dir, group, own);
  try {
    const auto text = recorder_.to_json(own, options_.name, cause);
    const auto file = FileDescriptor::open(path, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(file.number(), std::as_bytes(std::span(text)), path);
  } catch (const std::exception& error) {
    // Only a warning: the cause of the failure matters more.
    log_.warning(fmt::format("cannot write the flight recorder: {}", error.what()));
  }
}

}  // namespace lockstep
