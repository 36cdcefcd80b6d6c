// How often the host waits for a GPU. A step that waits cannot enqueue work ahead of the device.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep {

/// Counts the operations of LibTorch that wait for a GPU (item(), nonzero(), copies to pageable
/// memory, …) on the thread that creates it, and in the backward passes that this thread starts.
/// While it exists, LibTorch's debug mode for synchronisations is on in the whole process: make it
/// in a program, not in a library. Destroy it on the thread that created it. Counts nothing where
/// lockstep was built without CUDA.
class HostSyncs {
 public:
  HostSyncs();
  HostSyncs(const HostSyncs&) = delete;
  HostSyncs& operator=(const HostSyncs&) = delete;
  ~HostSyncs();

  /// The number of waits since the last call of read_and_reset(), or since the construction.
  [[nodiscard]] std::int64_t read_and_reset() noexcept;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
