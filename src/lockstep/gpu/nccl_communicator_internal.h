// One rank's part of an NCCL communicator, with the two rules that NCCL leaves to its caller:
//
//   - A non-blocking communicator works on a call after the call has returned. Until then nothing
//     may be enqueued behind it: no other call, no event. ready() states it.
//   - ncclCommAbort frees the communicator. Another thread must not be in a call then, and none may
//     follow. A lock here keeps both apart; calls return at once, so abort() waits briefly. It ends
//     the kernels at once, and returns when all CUDA graphs that contain calls of the communicator
//     have been destroyed: their owner may wait for the error that abort() is part of. So a thread
//     of its own calls it.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/gpu/nccl_functions.h"

namespace lockstep {

struct NcclRank {
  int size = 1;
  int rank = 0;
};

class NcclComm {
 public:
  /// Starts to connect with the other ranks that use `id`, on the current device. Collective.
  /// Returns at once; ready() states when the ranks are connected. Throws SystemError.
  NcclComm(std::shared_ptr<NcclFunctions> functions, const NcclId& id, const NcclRank& own);
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;
  /// Aborts unless closed. Waits for the end of an abort, for up to 5 s: after that, the thread
  /// that aborts is on its own.
  ~NcclComm();

  /// Whether NCCL has enqueued all earlier calls. Throws SystemError if one has failed, or after
  /// abort().
  [[nodiscard]] bool ready();
  /// The error that NCCL has reported, in words; nullopt if it has reported none. Thread-safe.
  [[nodiscard]] std::optional<std::string> find_error() noexcept;

  /// Calls `calls` as one NCCL group: all that it enqueues makes progress together. Requires
  /// ready(). Throws SystemError if NCCL refuses, or after abort().
  using Calls = std::function<DeviceStatus(NcclFunctions&, void* communicator)>;
  void enqueue(const Calls& calls);

  /// Ends all work of this communicator on the device, without its result: it starts to do so, and
  /// the streams state when it has. Any thread; the second call does nothing.
  void abort() noexcept;
  /// Ends the communicator in order, after its work. Collective. `check` is called while this rank
  /// waits for the others and throws if one of them is lost. Aborts instead if it throws, if NCCL
  /// reports an error and after the deadline; returns whether it closed in order.
  bool close(Deadline deadline, const std::function<void()>& check) noexcept;

  [[nodiscard]] bool is_open() const noexcept;

 private:
  [[nodiscard]] bool query();  // as ready(), with mutex_ held

  const std::shared_ptr<NcclFunctions> functions_;
  mutable std::mutex mutex_;
  void* comm_ = nullptr;        // mutex_; null once closed or aborted
  std::future<void> is_freed_;  // mutex_; of the thread that aborts
  // mutex_; of the first query that failed. Kept: work behind calls that were not enqueued must
  // never count as done, whatever a later query says.
  DeviceStatus failure_ = {};
};

/// The id of a new communicator. One rank calls this and gives it to the others. Throws
/// SystemError.
[[nodiscard]] NcclId make_nccl_id(NcclFunctions& functions);

}  // namespace lockstep
