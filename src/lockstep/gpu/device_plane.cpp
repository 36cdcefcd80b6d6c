#include "lockstep/gpu/device_plane_internal.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/fabric/group.h"
#include "lockstep/gpu/event_condition_internal.h"
#include "lockstep/gpu/gather_internal.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::microseconds kPoll{50};
constexpr milliseconds kReleaseTime{300};  // a failure is reported within a second
constexpr milliseconds kPatience{50};

// What a rank tells the others at the first call on a device.
struct Introduction {
  DeviceFacts facts = {};
  ProcessIdentity process = {};
  std::array<char, 400> error = {};  // why it cannot use its device; empty: it can
};

Recipe send_recipe(DeviceMessage& message, DeviceContext& context, int rank) {
  const EventCondition copied(context, message.result->event(), rank);
  co_await Awaited{.local = &copied};
  copied.expect_passed();
  auto& on_host = message.on_host->recipe;
  for (on_host.advance(); !on_host.done(); on_host.advance()) co_await on_host.awaited();
}

Recipe receive_recipe(DeviceMessage& message, DeviceContext& context, std::span<std::byte> bytes) {
  auto& on_host = message.on_host->recipe;
  for (on_host.advance(); !on_host.done(); on_host.advance()) co_await on_host.awaited();
  const auto selected = context.scope();
  auto* const stream = context.message_stream();
  context.make_wait(stream, message.ready.get());
  expect(context.functions().copy(bytes.data(), message.pinned.get(), bytes.size(), stream),
         "a copy to the device");
  message.result->record(stream);
}

}  // namespace

DeviceDataPlane::DeviceDataPlane(DeviceOptions options, Membership membership,
                                 ControlPlane& control, DataPlane& host)
    : options_(std::move(options)),
      membership_(std::move(membership)),
      control_(control),
      host_(host),
      log_({.rank = membership_.global_ranks[static_cast<std::size_t>(membership_.rank)]}) {}

DeviceDataPlane::~DeviceDataPlane() {
  if (watcher_) watcher_->remove(*this);
  if (!has_leftovers_ || try_cut_off()) return;
  // Work that has not ended must not access memory that has been released: it is leaked.
  (void)transport_.release();
  (void)new auto(std::move(outstanding_));
}

std::string DeviceDataPlane::kind() const {
  return is_connected_.load() ? std::string(to_string(choice_.kind)) : "";
}

std::string DeviceDataPlane::reason() const { return is_connected_.load() ? choice_.reason : ""; }

std::optional<std::string> DeviceDataPlane::refusal_of(const Device& device) const {
  if (options_.backend.backend == BackendKind::shm) {
    return "backend shm was requested, and it supports CPU memory only; request no backend, or "
           "ipc, "
           "staged or nccl";
  }
  if (is_open_.load() && context_->device() != device.index) {
    return fmt::format(
        "this rank uses cuda:{} in this group, and a group uses one device per rank; use one "
        "device, "
        "or split() a group for the other one",
        context_->device());
  }
  return std::nullopt;
}

void DeviceDataPlane::open(int device) {
  const std::lock_guard lock(opening_);
  if (is_open_.load()) return;
  auto functions = options_.functions();
  int count = 0;
  expect(functions->count_devices(count), "the number of devices");
  if (device < 0 || device >= count) {
    throw UsageError(fmt::format("there is no cuda:{}: this process has {} GPUs", device, count));
  }
  context_ = std::make_shared<DeviceContext>(std::move(functions), device);
  is_open_.store(true);
}

std::vector<DevicePeer> DeviceDataPlane::exchange_facts(Group& group, int device) {
  Introduction own{.process = ProcessIdentity::of(::getpid())};
  try {
    open(device);
    expect(context_->functions().describe(device, own.facts), "the properties of a device");
    own.facts.index = device;
    if (options_.nccl) nccl_ = options_.nccl();
    own.facts.has_nccl = nccl_ != nullptr;
  } catch (const Error& error) {
    std::strncpy(own.error.data(), error.what(), own.error.size() - 1);
  }
  // Ranks with other options make another call, which names both sides.
  const auto& backend = options_.backend.backend;
  const auto name = fmt::format("GPUs, backend {}, stage {}",
                                backend ? to_string(*backend) : "automatic", options_.stage_bytes);
  const auto all = gather(group, own, name);
  std::vector<DevicePeer> peers;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto& other = all[static_cast<std::size_t>(rank)];
    if (other.error[0] != '\0') {
      throw SystemError(fmt::format("rank {} cannot use its GPU: {}", group.global_rank(rank),
                                    other.error.data()));
    }
    peers.push_back({group.global_rank(rank), other.process, other.facts});
  }
  return peers;
}

void DeviceDataPlane::connect(Group& group, const Device& device) {
  if (is_connected_.load()) return;  // refusal_of() has compared the device
  const std::lock_guard lock(connecting_);
  if (is_connected_.load()) return;
  group_name_ = group.options().name;
  timeout_ = group.options().timeout;
  auto peers = exchange_facts(group, device.index);
  DeviceTopology topology;
  for (const auto& peer : peers) {
    topology.global_ranks.push_back(peer.global_rank);
    topology.devices.push_back(peer.facts);
  }
  choice_ = choose_device_backend(topology, options_.backend);
  parts_ = {membership_, std::move(peers), context_, &control_, options_.stage_bytes};
  transport_ = make_transport(group, choice_);
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto& process = parts_.peers[static_cast<std::size_t>(rank)].process;
    if (process.process == ::getpid()) continue;
    watched_peers_.push_back({rank, membership_.registry->watches().watch(process)});
  }
  is_connected_.store(true);
  if (group.rank() == 0) {
    log_.info(fmt::format("group {} uses backend {} for GPU memory: {}", group_name_,
                          to_string(choice_.kind), choice_.reason));
  }
  if (options_.watcher) {
    watcher_ = options_.watcher();
    watcher_->add(*this);
  }
  transport_->tune(group);
}

std::unique_ptr<DeviceTransport> DeviceDataPlane::make_transport(Group& group,
                                                                 const BackendChoice& choice) {
  const auto selected = context_->scope();
  if (choice.kind == BackendKind::nccl) {
    return make_nccl_transport(group, parts_, nccl_, options_.nccl_reduction, options_.nccl_ratios);
  }
  if (choice.kind == BackendKind::ipc) {
    auto made = make_ipc_transport(group, parts_);
    if (made.transport) return std::move(made.transport);
    // Refused on every rank alike.
    if (options_.backend.backend)
      throw SystemError("backend ipc was requested, but " + made.refusal);
    choice_ = {BackendKind::staged, made.refusal};
  }
  return make_staged_transport(group, parts_);
}

std::shared_ptr<CallOperation> DeviceDataPlane::prepare(const Call& call,
                                                        std::uint64_t /*number*/) {
  drop_ended();
  const auto selected = context_->scope();
  auto own = std::make_shared<DeviceCall>(std::make_unique<EventResult>(
      *this, context_, membership_.rank, [this] { return transport_->lagging(); }));
  own->call = call;
  own->ready = context_->record(call.stream);
  own->memory_words = transport_->words_of(call);
  return own;
}

Recipe DeviceDataPlane::begin(CallOperation& operation) {
  auto& call = static_cast<DeviceCall&>(operation);
  const auto selected = context_->scope();
  context_->make_wait(context_->stream(), call.ready.get());
  return transport_->begin(call);
}

std::shared_ptr<DeviceMessage> DeviceDataPlane::make_message(const Message& message) {
  open(message.device.index);
  drop_ended();
  const auto selected = context_->scope();
  auto own = std::make_shared<DeviceMessage>(std::make_unique<EventResult>(
      *this, context_, membership_.rank, [rank = membership_.rank] { return rank; }));
  own->message = message;
  own->ready = context_->record(message.stream);
  return own;
}

std::shared_ptr<MessageOperation> DeviceDataPlane::send(const Message& message,
                                                        std::span<const std::byte> bytes) {
  auto own = make_message(message);
  const auto selected = context_->scope();
  own->sends = true;
  own->pinned = context_->pinned(bytes.size());
  auto* const stream = context_->message_stream();
  context_->make_wait(stream, own->ready.get());
  expect(context_->functions().copy(own->pinned.get(), bytes.data(), bytes.size(), stream),
         "a copy to the host");
  own->result->record(stream);
  // Now, so that messages keep their order.
  auto on_host = message;
  on_host.device = {};
  own->on_host = host_.send(on_host, {own->pinned.get(), bytes.size()});
  own->recipe = send_recipe(*own, *context_, membership_.rank);
  return own;
}

std::shared_ptr<MessageOperation> DeviceDataPlane::receive(const Message& message,
                                                           std::span<std::byte> bytes) {
  auto own = make_message(message);
  own->pinned = context_->pinned(bytes.size());
  auto on_host = message;
  on_host.device = {};
  own->on_host = host_.receive(on_host, {own->pinned.get(), bytes.size()});
  own->recipe = receive_recipe(*own, *context_, bytes);
  return own;
}

void DeviceDataPlane::retire(Operation& operation) noexcept {
  auto& result = static_cast<EventResult&>(*operation.device_result());
  Outstanding own{.event = result.event(),
                  .keep = std::move(operation.keep),
                  .deadline = Deadline::after(timeout_)};
  if (operation.is_call) {
    const auto& call = static_cast<const DeviceCall&>(operation);
    own.label = {call.number, descriptor_of(call.call)};
  } else {
    auto& message = static_cast<DeviceMessage&>(operation);
    own.label.number = static_cast<std::uint64_t>(message.message.tag);
    own.keep = std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<std::byte>>>(
        std::move(own.keep), message.pinned);
  }
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
  return call ? fmt::format("call {} {}", number, to_string(*call))
              : fmt::format("a message with tag {}", number);
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

std::shared_ptr<RegisteredMemory> DeviceDataPlane::allocate(Group& group, std::size_t bytes) {
  const auto selected = context_->scope();
  return transport_->allocate(group, bytes);
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

std::optional<Cause> DeviceDataPlane::find_cause() noexcept {
  try {
    std::unique_lock lock(outstanding_mutex_);
    const auto* const oldest = oldest_outstanding();
    if (oldest == nullptr) return std::nullopt;
    const auto label = oldest->label;
    const auto deadline = oldest->deadline;
    lock.unlock();
    for (int rank = 0; rank < membership_.size(); ++rank) {
      if (rank == membership_.rank || control_.standing(rank) != Standing::failed) continue;
      return control_.cause(rank);
    }
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
    if (deadline.expired()) {
      const int lagging = transport_->lagging();
      const auto global_rank = parts_.peers[static_cast<std::size_t>(lagging)].global_rank;
      return Cause{lagging,
                   fmt::format("{} of group {} has not ended on the GPU after {:.1f} s, waiting "
                               "for the device of rank {}",
                               label.words(), group_name_,
                               std::chrono::duration<double>(timeout_).count(), global_rank)};
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
