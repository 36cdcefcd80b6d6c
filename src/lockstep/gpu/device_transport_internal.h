// How data moves between the devices of a group's ranks: ipc, staged or nccl. DeviceDataPlane calls
// it with the group's lock held, unless stated otherwise.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/gpu/device_call_internal.h"
#include "lockstep/gpu/device_context_internal.h"
#include "lockstep/gpu/nccl_functions.h"
#include "lockstep/rendezvous/process_identity.h"

namespace lockstep {

/// One rank of a group whose devices are connected.
struct DevicePeer {
  int global_rank = 0;
  ProcessIdentity process = {};
  DeviceFacts facts = {};
};

/// What a transport is made of. The control plane outlives it.
struct DeviceTransportParts {
  Membership membership;
  std::vector<DevicePeer> peers;  // by rank, this one included
  std::shared_ptr<DeviceContext> context;
  ControlPlane* control = nullptr;
  std::size_t stage_bytes = 0;  // of a rank's buffer for data outside registered memory

  [[nodiscard]] int rank() const noexcept { return membership.rank; }
  [[nodiscard]] int size() const noexcept { return membership.size(); }
};

class DeviceTransport {
 public:
  DeviceTransport() = default;
  DeviceTransport(const DeviceTransport&) = delete;
  DeviceTransport& operator=(const DeviceTransport&) = delete;
  virtual ~DeviceTransport() = default;

  /// The words by which other ranks find the memory of a call.
  [[nodiscard]] virtual MemoryWords words_of(const Call& /*call*/) const { return {}; }
  /// All ranks have entered equal calls; weight and tree are known. Enqueues the work on the
  /// context's stream, which already waits until the caller's stream has reached the call; then
  /// calls `call.result->record()` with that stream and returns an empty recipe. Or returns a
  /// recipe that does. Throws SystemError.
  [[nodiscard]] virtual Recipe begin(DeviceCall& call) = 0;
  /// As DevicePlane::allocate().
  [[nodiscard]] virtual std::shared_ptr<RegisteredMemory> allocate(Group& group,
                                                                   std::size_t bytes) = 0;

  /// Measures what the transport wants to know, with calls of `group` on the devices. Collective;
  /// called once, after the ranks are connected.
  virtual void tune(Group& /*group*/) {}
  /// Called after the enqueued work has ended, when this rank leaves the group. Ends the
  /// connections in order; waits for the other ranks to leave too, while `watch` does not throw.
  virtual void leave(Deadline /*deadline*/, const Watch& /*watch*/) noexcept {}

  // Without the group's lock, from any thread:

  /// The rank whose work the enqueued operations await, as far as it is known; otherwise this rank.
  [[nodiscard]] virtual int lagging() const noexcept = 0;
  /// An error that no event reports. Called while operations are outstanding.
  [[nodiscard]] virtual std::optional<Cause> find_error() noexcept { return std::nullopt; }
  /// Lets the enqueued work end without its result. Called until the stream is empty: once may not
  /// be enough while other ranks continue.
  virtual void release_waits() noexcept = 0;
  /// Called after the stream has become empty in a failed group. Returns whether no other rank can
  /// write to this rank's memory any more.
  [[nodiscard]] virtual bool expect_privacy(Deadline /*deadline*/) noexcept { return true; }
};

/// A transport, or why the devices refuse it, which is the same on all ranks.
struct MadeTransport {
  std::unique_ptr<DeviceTransport> transport;
  std::string refusal;
};

/// Each is collective over `group`, with calls on CPU memory, and throws SystemError and PeerError.
[[nodiscard]] MadeTransport make_ipc_transport(Group& group, const DeviceTransportParts& parts);
[[nodiscard]] std::unique_ptr<DeviceTransport> make_staged_transport(
    Group& group, const DeviceTransportParts& parts);
[[nodiscard]] std::unique_ptr<DeviceTransport> make_nccl_transport(
    Group& group, const DeviceTransportParts& parts, const std::shared_ptr<NcclFunctions>& nccl,
    NcclReduction reduction, const std::filesystem::path& ratios);

}  // namespace lockstep
