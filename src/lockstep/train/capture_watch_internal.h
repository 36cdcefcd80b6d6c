// Names the operations that a CUDA graph cannot contain: LibTorch's own errors do not. While it
// lives, it observes LibTorch's operators on the threads whose current stream is being captured.
#pragma once

#include <ATen/record_function.h>

#include <mutex>
#include <string>

namespace lockstep {

/// One at a time per process.
class CaptureWatch {
 public:
  CaptureWatch();
  CaptureWatch(const CaptureWatch&) = delete;
  CaptureWatch& operator=(const CaptureWatch&) = delete;
  ~CaptureWatch();

  /// The operator that began last.
  [[nodiscard]] std::string last_operator() const;
  /// The first operator that got a CPU tensor: it ran now and is not part of the graph. Empty if
  /// there was none. Zero-dimensional CPU tensors are constants.
  [[nodiscard]] std::string cpu_operator() const;

  void note(const at::RecordFunction& function);

 private:
  mutable std::mutex mutex_;
  std::string last_, cpu_;
  at::CallbackHandle handle_;
};

}  // namespace lockstep
