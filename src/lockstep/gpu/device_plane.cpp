#include "lockstep/gpu/device_plane_internal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"
#include "lockstep/gpu/event_condition_internal.h"
#include "lockstep/gpu/gather_internal.h"

namespace lockstep {
namespace {

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
  const auto selected = context_->scope();
  const bool is_captured = context_->functions().is_capturing(call.stream);
  // During a capture no event may be asked.
  is_captured ? expect_capturable() : drop_ended();
  auto own = std::make_shared<DeviceCall>(std::make_unique<EventResult>(
      *this, context_, membership_.rank, [this] { return transport_->lagging(); }));
  if (is_captured) own->result->set_captured();
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
  const auto selected = context_->scope();
  if (context_->functions().is_capturing(message.stream)) {
    throw UsageError(fmt::format(
        "a message with tag {} cannot be part of a CUDA graph: it moves through memory of the "
        "host; send and receive outside of the captured function",
        message.tag));
  }
  drop_ended();
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

void DeviceDataPlane::expect_capturable() const {
  const auto refuse = [this](std::string_view why) {
    throw UsageError(
        fmt::format("a call of group {} cannot be part of a CUDA graph: {}", group_name_, why));
  };
  if (choice_.kind != BackendKind::nccl) {
    refuse(fmt::format("the group uses backend {}, and only calls over nccl can be captured",
                       to_string(choice_.kind)));
  }
  if (!allows_capture_) refuse("give the group to CudaGraphStepOptions::groups");
}

std::shared_ptr<RegisteredMemory> DeviceDataPlane::allocate(Group& group, std::size_t bytes) {
  const auto selected = context_->scope();
  return transport_->allocate(group, bytes);
}

}  // namespace lockstep
