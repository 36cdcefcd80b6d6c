// How the data of a group's calls moves: one version per transport; group.h uses it. The group has
// checked the calls before, and waits; a data plane gives it recipes that say what they wait for.
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
#include "lockstep/fabric/call.h"
#include "lockstep/fabric/device.h"
#include "lockstep/fabric/recipe.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

class Group;

/// An operation that has begun: a call, a send or a receive. Group advances it.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// What the ranks said along with the call, combined, once the operation is done; the default
  /// where the call had no flags.
  [[nodiscard]] const GroupFlags& flags() const noexcept { return group_flags; }

  // Kept by the group; guarded by its lock.
  bool is_call = true;
  bool begun = false;
  bool done = false;
  Recipe recipe = {};
  GroupFlags group_flags = {};
  std::shared_ptr<const void> keep = {};  // what must live until it is done
};

/// A collective. Data planes derive from it for what they must remember per call.
class CallOperation : public Operation {
 public:
  Call call = {};                 // its name is in the record
  MemoryWords memory_words = {};  // set by DataPlane::prepare
  std::uint64_t number = 0;
  std::uint64_t signature = 0;
  // Known once all ranks have entered.
  std::int64_t weight = 0;                // of all ranks
  std::optional<TreePlan> own_tree = {};  // where contributions state their leaves
  const TreePlan* rank_tree = nullptr;
  [[nodiscard]] const TreePlan& tree() const noexcept { return own_tree ? *own_tree : *rank_tree; }
};

/// A span to send to, or to receive from, one other rank.
struct Message {
  int peer = 0;  // a rank of the group
  int tag = 0;
  DType dtype = DType::uint8;
  std::int64_t count = 0;
  Device device = {};  // where the span lies
};

class MessageOperation : public Operation {
 public:
  Message message = {};
  bool sends = false;
};

/// One rank's part of an allocation: memory that collectives use without a copy.
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  virtual ~RegisteredMemory() = default;

  [[nodiscard]] virtual std::span<std::byte> bytes() const noexcept = 0;
};

/// Called again and again while something waits for another rank; throws when it waits in vain.
using Watch = std::function<void()>;

class DataPlane {
 public:
  /// What begin_moving() and end_moving() work on: `moving` is 1 while this rank moves data, null
  /// where no other rank needs to know; `given_up` is not 0 once a rank has given the group up.
  /// Both outlive this.
  DataPlane(std::atomic<std::uint32_t>* moving, const std::atomic<std::uint64_t>& given_up) noexcept
      : moving_(moving), given_up_(given_up) {}
  DataPlane(const DataPlane&) = delete;
  DataPlane& operator=(const DataPlane&) = delete;
  virtual ~DataPlane() = default;

  /// "shm", for tables and logs.
  [[nodiscard]] virtual std::string kind() const = 0;
  /// What all ranks must have set alike, in words; compared when the group is made.
  [[nodiscard]] virtual std::string settings() const = 0;
  /// Why memory of `device` cannot be used here; nothing: it can.
  [[nodiscard]] virtual std::optional<std::string> refusal_of(const Device& device) const = 0;
  /// Measures what it needs to know, with calls of `group`. Collective; once, when the group has
  /// been made.
  virtual void tune(Group& group) = 0;

  /// Before this rank enters a call: a new operation with `call` and memory_words set. A small
  /// input may be made ready for others to read.
  [[nodiscard]] virtual std::shared_ptr<CallOperation> prepare(const Call& call,
                                                               std::uint64_t number) = 0;
  /// All ranks have entered equal calls; `same_memory`: their memory_words are equal too. Moves the
  /// data and returns an empty recipe, or returns the recipe that does.
  [[nodiscard]] virtual Recipe begin(CallOperation& operation, bool same_memory) = 0;
  /// While this rank waits for others to enter `oldest`: a chance to fetch what is there already.
  virtual void look_ahead(CallOperation& oldest) noexcept = 0;
  /// The operation is complete; `is_last`: no later call has been entered.
  virtual void retire(CallOperation& operation, bool is_last) noexcept = 0;

  /// Messages from one rank to another with the same tag arrive in order; sixteen of other tags may
  /// wait for their receives meanwhile. The recipes throw PeerError when what is sent is not what
  /// is received.
  [[nodiscard]] virtual std::shared_ptr<MessageOperation> send(
      const Message& message, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual std::shared_ptr<MessageOperation> receive(const Message& message,
                                                                  std::span<std::byte> bytes) = 0;

  /// New zeroed memory of `bytes` on every rank. Every rank calls this at the same point of its
  /// calls. May return before others have it. Throws SystemError; what `watch` throws.
  [[nodiscard]] virtual std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes,
                                                                   const Device& device,
                                                                   Deadline deadline,
                                                                   const Watch& watch) = 0;

  /// Data moves between these two only. False: another rank has given the group up, nothing moves
  /// any more.
  [[nodiscard]] bool begin_moving() noexcept {
    if (moving_ != nullptr) moving_->store(1, std::memory_order_seq_cst);
    return given_up_.load(std::memory_order_seq_cst) == 0;
  }
  void end_moving() noexcept {
    if (moving_ != nullptr) moving_->store(0, std::memory_order_release);
  }
  /// This rank has given the group up: others must not move data any more.
  virtual void give_up() noexcept = 0;
  /// Returns when no other rank can write to this rank's memory any more: after a failure, or when
  /// this rank leaves in the middle of a call. Throws SystemError.
  virtual void cut_off() = 0;

 private:
  std::atomic<std::uint32_t>* moving_;
  const std::atomic<std::uint64_t>& given_up_;
};

}  // namespace lockstep
