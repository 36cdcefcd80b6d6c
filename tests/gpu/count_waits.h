// Counts the calls in which the host waits for a GPU, by functions that take the place of the CUDA
// runtime's and the driver's: a program that links this library before LibTorch, or is started with
// it in LD_PRELOAD, calls these. They are those that LibTorch, lockstep and programs call;
// libraries that contain a runtime of their own, as cuBLAS and NCCL, are not seen. When a preloaded
// process ends, it writes its count to <library>.<pid>.
#pragma once

namespace lockstep {

struct Waits {
  long synchronizations = 0;  // of streams, events and devices
  long copies = 0;            // synchronous ones, and asynchronous ones of pageable memory
  long frees = 0;             // of memory, and of its registration and mapping

  [[nodiscard]] long all() const noexcept { return synchronizations + copies + frees; }
};

/// Those of this process so far.
[[nodiscard]] Waits count_waits() noexcept;

}  // namespace lockstep
