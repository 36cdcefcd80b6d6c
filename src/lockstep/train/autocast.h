// LibTorch's autocast as a scope: operators for which it is safe compute in 16 bits.
//
//   { Autocast lower(at::kBFloat16); loss = loss_of(net->forward(input), target); }
//   loss.backward();                                    // outside: uses the dtypes of the forward
//
// LibTorch caches the 16-bit copies of weights that it makes inside a scope, regardless of their
// dtype and of later changes of the weight. So a scope clears the cache when it changes the dtype,
// and the outermost scope when it ends. After weights have changed inside a scope (an optimizer
// step), call forget_casts().
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Whether operators of one device type cast to 16 bits, and to which dtype.
struct AutocastState {
  bool enabled = false;
  at::ScalarType dtype = at::kBFloat16;
  at::DeviceType device = at::kCPU;

  friend bool operator==(const AutocastState&, const AutocastState&) = default;
};

/// The current state of the calling thread.
[[nodiscard]] AutocastState autocast_state(at::DeviceType device);

/// Sets the calling thread's state until the end of the scope; scopes nest.
class Autocast {
 public:
  /// `dtype` is bfloat16 or float16; float32 turns autocast off inside the scope.
  /// Throws UsageError for any other dtype.
  explicit Autocast(at::ScalarType dtype, at::DeviceType device = at::kCPU);
  /// Sets a state that autocast_state() has returned.
  explicit Autocast(const AutocastState& state);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// Clears the cached copies of weights. Call it after weights have changed inside a scope.
  static void forget_casts();

 private:
  AutocastState before_;
};

/// Turns off the cache of casts until the end of the scope. For a forward whose graph is discarded:
/// a cached copy from it would have no history, or a freed one.
class UncachedAutocast {
 public:
  UncachedAutocast();
  ~UncachedAutocast();
  UncachedAutocast(const UncachedAutocast&) = delete;
  UncachedAutocast& operator=(const UncachedAutocast&) = delete;

 private:
  bool before_;
};

}  // namespace lockstep
