// The data plane of a group moves the data of its calls. One implementation per transport; group.h
// uses it. The group validates the calls and waits; a data plane returns recipes, which state what
// they wait for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/call_flags.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/ticks.h"
#include "lockstep/fabric/call.h"
#include "lockstep/fabric/device.h"
#include "lockstep/fabric/recipe.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/net/shared_memory.h"

namespace lockstep {

class Group;

/// The end of an operation's work on a GPU. Valid once the operation is done for the host: its work
/// has been enqueued.
class DeviceResult : public LocalCondition {
 public:
  /// Makes `stream` wait for the end of the work. Returns at once. Throws SystemError if
  /// the device refuses.
  virtual void make_wait(void* stream) = 0;
};

/// An operation that has started: a call, a send or a receive. Group advances it.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// The combined flags of all ranks. Valid once the operation is done; default-initialized if the
  /// call has no flags.
  [[nodiscard]] const GroupFlags& flags() const noexcept { return group_flags; }

  /// Null for memory of the CPU.
  [[nodiscard]] virtual DeviceResult* device_result() noexcept { return nullptr; }

  Device device = {};        // of the memory; set by the group
  Device processed_on = {};  // of tensors that the room above processes itself; set by that room
  // Maintained by the group; guarded by its lock.
  bool is_call = true;
  bool begun = false;
  bool done = false;  // for the host; on a GPU, device_result() states the end of the work
  Recipe recipe = {};
  GroupFlags group_flags = {};
  Ticks begun_at = 0;                     // this rank saw that all ranks had entered
  Ticks done_at = 0;                      // 0: a call without flags, of up to 16 KiB, done at once
  std::shared_ptr<const void> keep = {};  // kept alive until the operation is done
};

/// A collective. Data planes derive from it to add their own state per call.
class CallOperation : public Operation {
 public:
  Call call = {};                 // its name is in the record
  MemoryWords memory_words = {};  // set by DataPlane::prepare
  std::uint64_t number = 0;
  std::uint64_t signature = 0;
  // Set once all ranks have entered.
  std::int64_t weight = 0;                // sum over all ranks
  std::optional<TreePlan> own_tree = {};  // if the contributions state their leaves
  const TreePlan* rank_tree = nullptr;
  [[nodiscard]] const TreePlan& tree() const noexcept { return own_tree ? *own_tree : *rank_tree; }
};

/// A span to send to, or to receive from, one rank.
struct Message {
  int peer = 0;  // a rank of the group
  int tag = 0;
  DType dtype = DType::uint8;
  std::int64_t count = 0;
  Device device = {};      // of the span
  void* stream = nullptr;  // as Call::stream
};

class MessageOperation : public Operation {
 public:
  Message message = {};
  bool sends = false;
};

/// Registered memory: one rank's part of an allocation, which collectives access in place.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  virtual ~RegisteredMemory() = default;

  [[nodiscard]] virtual std::span<std::byte> bytes() const noexcept = 0;
  /// The part of `rank`, as this rank has it mapped; empty if this rank cannot access it.
  [[nodiscard]] virtual std::span<std::byte> part(int /*rank*/) const noexcept { return {}; }
  /// The parts of all ranks one after the other, if they are one run of memory that every rank has
  /// mapped: whole pages each. Otherwise empty.
  [[nodiscard]] virtual std::span<std::byte> all_parts() const noexcept { return {}; }
  /// A private view of all_parts(); null if that is empty. Throws SystemError.
  [[nodiscard]] virtual std::unique_ptr<PrivateView> view_all_parts() const { return nullptr; }
};

/// Called repeatedly while a function waits for another rank; throws if that rank has failed.
using Watch = std::function<void()>;

class DataPlane {
 public:
  /// The words used by begin_moving() and end_moving(): `moving` is 1 while this rank moves data,
  /// and may be null if no other rank reads it; `given_up` is nonzero once a rank has given up the
  /// group. Both must outlive this object.
  DataPlane(std::atomic<std::uint32_t>* moving, const std::atomic<std::uint64_t>& given_up) noexcept
      : moving_(moving), given_up_(given_up) {}
  DataPlane(const DataPlane&) = delete;
  DataPlane& operator=(const DataPlane&) = delete;
  virtual ~DataPlane() = default;

  /// "shm", for tables and logs.
  [[nodiscard]] virtual std::string kind() const = 0;
  /// The settings that must be equal on all ranks, as text; compared when the group is created.
  [[nodiscard]] virtual std::string settings() const = 0;
  /// Why memory on `device` is unsupported; nullopt if it is supported.
  [[nodiscard]] virtual std::optional<std::string> refusal_of(const Device& device) const = 0;
  /// Measures parameters of the transport with calls of `group`. Collective; called once, at the
  /// end of the group's construction.
  virtual void tune(Group& group) = 0;

  /// Called before this rank enters a call. Returns a new operation with `call` and memory_words
  /// set. May publish a small input.
  [[nodiscard]] virtual std::shared_ptr<CallOperation> prepare(const Call& call,
                                                               std::uint64_t number) = 0;
  /// Called when all ranks have entered equal calls; `same_memory`: their memory_words are equal
  /// too. Moves the data and returns an empty recipe, or returns the recipe that moves it.
  [[nodiscard]] virtual Recipe begin(CallOperation& operation, bool same_memory) = 0;
  /// Called while this rank waits for others to enter `oldest`: may prefetch inputs that are
  /// already published.
  virtual void look_ahead(CallOperation& oldest) noexcept = 0;
  /// Called when the operation is complete; `is_last`: this rank has entered no later call.
  virtual void retire(CallOperation& operation, bool is_last) noexcept = 0;

  /// Start a message. Messages from one rank to another with the same tag arrive in order; up to
  /// sixteen messages of other tags may wait for their receives meanwhile. The recipes throw
  /// PeerError if sender and receiver disagree on dtype or count.
  [[nodiscard]] virtual std::shared_ptr<MessageOperation> send(
      const Message& message, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual std::shared_ptr<MessageOperation> receive(const Message& message,
                                                                  std::span<std::byte> bytes) = 0;

  /// Allocates zeroed memory of `bytes` on every rank. Collective: every rank calls this at the
  /// same point of its calls. May return before other ranks have their memory. Throws SystemError,
  /// and any exception of `watch`.
  [[nodiscard]] virtual std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes,
                                                                   const Device& device,
                                                                   Deadline deadline,
                                                                   const Watch& watch) = 0;

  /// Data moves only between begin_moving() and end_moving(). begin_moving() returns false if
  /// another rank has given up the group; then no data may be moved.
  [[nodiscard]] bool begin_moving() noexcept {
    if (moving_ != nullptr) moving_->store(1, std::memory_order_seq_cst);
    return given_up_.load(std::memory_order_seq_cst) == 0;
  }
  void end_moving() noexcept {
    if (moving_ != nullptr) moving_->store(0, std::memory_order_release);
  }
  /// Publishes that this rank has given up the group: other ranks must stop moving data.
  virtual void give_up() noexcept = 0;
  /// Isolates this rank's memory after a failure, or when this rank leaves during a call. Returns
  /// when no other rank can write to it. Throws SystemError.
  virtual void cut_off() = 0;

 private:
  std::atomic<std::uint32_t>* moving_;
  const std::atomic<std::uint64_t>& given_up_;
};

}  // namespace lockstep
