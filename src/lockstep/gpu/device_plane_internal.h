// The device plane of a group: opens the device of this rank, chooses and connects the transport at
// the first collective, keeps the memory of enqueued work alive, and is watched. Messages go
// through pinned memory and the data plane for CPU memory: they are not collective, so that no
// transport needs to be connected for them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/fabric/device_plane.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/gpu/connect.h"
#include "lockstep/gpu/device_call_internal.h"
#include "lockstep/gpu/device_context_internal.h"
#include "lockstep/gpu/device_transport_internal.h"
#include "lockstep/gpu/watched.h"

namespace lockstep {

class DeviceDataPlane final : public DevicePlane, public WatchedGroup {
 public:
  /// `control` and `host` are the other planes of the group and outlive this one.
  DeviceDataPlane(DeviceOptions options, Membership membership, ControlPlane& control,
                  DataPlane& host);
  ~DeviceDataPlane() override;

  [[nodiscard]] std::string kind() const override;
  [[nodiscard]] std::string reason() const override;
  [[nodiscard]] std::optional<std::string> refusal_of(const Device& device) const override;
  void connect(Group& group, const Device& device) override;
  [[nodiscard]] std::shared_ptr<CallOperation> prepare(const Call& call,
                                                       std::uint64_t number) override;
  [[nodiscard]] Recipe begin(CallOperation& operation) override;
  [[nodiscard]] std::shared_ptr<MessageOperation> send(const Message& message,
                                                       std::span<const std::byte> bytes) override;
  [[nodiscard]] std::shared_ptr<MessageOperation> receive(const Message& message,
                                                          std::span<std::byte> bytes) override;
  void retire(Operation& operation) noexcept override;
  void allow_capture(bool allowed) noexcept override { allows_capture_ = allowed; }
  void begin_replay(void* stream) override;
  void note_replay(void* stream) override;
  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(Group& group,
                                                           std::size_t bytes) override;
  void cut_off() noexcept override;
  void leave(const Watch& watch) noexcept override;

  [[nodiscard]] const std::vector<Peer>& peers() const noexcept override { return watched_peers_; }
  [[nodiscard]] std::optional<Deadline> next_deadline() noexcept override;
  [[nodiscard]] bool may_sleep() noexcept override;
  void extend_deadlines(std::chrono::nanoseconds time) noexcept override;
  [[nodiscard]] std::optional<Cause> find_cause() noexcept override;
  void fail(const Cause& cause) noexcept override;
  [[nodiscard]] bool release() noexcept override;

 private:
  struct Label {
    enum class Kind : std::uint8_t { call, message, replay };
    Kind kind = Kind::call;
    std::uint64_t number = 0;  // of the call, of the replay, or the tag of the message
    CallDescriptor call = {};
    [[nodiscard]] std::string words() const;  // "call 7 all_reduce(…)"
  };
  // An operation whose work may not have ended.
  struct Outstanding {
    std::shared_ptr<void> event;
    std::shared_ptr<const void> keep;
    Deadline deadline;
    Label label = {};
  };

  void open(int device);  // this rank's device, the first time
  [[nodiscard]] std::vector<DevicePeer> exchange_facts(Group& group, int device);
  [[nodiscard]] std::unique_ptr<DeviceTransport> make_transport(Group& group,
                                                                const BackendChoice& choice);
  [[nodiscard]] std::shared_ptr<DeviceMessage> make_message(const Message& message);
  void drop_ended() noexcept;
  void expect_capturable() const;
  void add_outstanding(Outstanding&& own) noexcept;
  [[nodiscard]] const Outstanding* oldest_outstanding() noexcept;
  [[nodiscard]] std::optional<Cause> published_failure() const;
  [[nodiscard]] std::optional<Cause> find_lost_rank(const Label& label) const;
  [[nodiscard]] bool is_idle() noexcept;
  [[nodiscard]] bool try_cut_off() noexcept;
  [[nodiscard]] bool has_lost_rank() const noexcept;

  const DeviceOptions options_;
  const Membership membership_;
  ControlPlane& control_;
  DataPlane& host_;
  const Log log_;
  std::string group_name_ = "";
  std::chrono::milliseconds timeout_{600'000};

  std::mutex connecting_;  // guards connect(), which makes calls of the group
  std::mutex opening_;     // guards open(); never held while the group's lock is taken
  std::shared_ptr<DeviceContext> context_;  // set once
  std::atomic<bool> is_open_ = false;
  std::atomic<bool> is_connected_ = false;
  std::atomic<bool> allows_capture_ = false;
  std::uint64_t replays_ = 0;
  std::shared_ptr<NcclFunctions> nccl_;  // null: there is none
  BackendChoice choice_ = {};            // valid once connected
  DeviceTransportParts parts_ = {};      // likewise
  std::unique_ptr<DeviceTransport> transport_;
  bool has_leftovers_ = false;  // work of a failed group could not be released
  std::vector<Peer> watched_peers_;
  std::shared_ptr<Watcher> watcher_;

  std::mutex outstanding_mutex_;
  std::deque<Outstanding> outstanding_;  // outstanding_mutex_; oldest first
  bool is_watched_ = false;    // outstanding_mutex_; the watcher looks again without a wake()
  bool has_new_work_ = false;  // outstanding_mutex_; since the last may_sleep()
};

}  // namespace lockstep
