// Forward in 16 bits where that is safe: LibTorch's autocast as a scope.
//
//   { Autocast lower(at::kBFloat16); loss = loss_of(net->forward(input)); }
//   loss.backward();                                    // outside: backward follows the forward's
//   types
//
// LibTorch keeps the 16-bit copies of weights that it makes inside a region, whatever type they
// have and whether or not the weight has changed since. A scope therefore drops them where the type
// changes, and the outermost one when it ends. After weights were changed inside a region (an
// optimizer's step), call forget_casts().
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Whether operators of one kind of device cast to 16 bits, and to which type.
struct AutocastState {
  bool enabled = false;
  at::ScalarType dtype = at::kBFloat16;
  at::DeviceType device = at::kCPU;

  friend bool operator==(const AutocastState&, const AutocastState&) = default;
};

/// The calling thread's, now.
[[nodiscard]] AutocastState autocast_state(at::DeviceType device);

/// Sets the calling thread's state until the end of the block; scopes nest.
class Autocast {
 public:
  /// `dtype` is bfloat16 or float16; float32 switches autocast off for a part that needs it.
  /// Throws UsageError for another dtype.
  explicit Autocast(at::ScalarType dtype, at::DeviceType device = at::kCPU);
  /// Back to a state that was asked for before.
  explicit Autocast(const AutocastState& state);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  /// For weights that were changed inside a region: drops the copies made of them before.
  static void forget_casts();

 private:
  AutocastState before_;
};

/// Lets regions make each cast anew, without keeping any, until the end of the block. For a forward
/// whose graph is thrown away: a copy kept from it has no history, or one that is used up.
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
