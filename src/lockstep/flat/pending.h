// A number that may still be computed on a GPU: the norm of gradients, a loss, whether a step was
// made. The host waits for the device only when it reads the number. On the CPU this is simply the
// number.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>

namespace lockstep {

/// `T` is double or bool. Copies refer to the same computation. For use by one thread at a time.
template <typename T>
class Pending {
 public:
  Pending() = default;
  Pending(T value) : value_(value) {}  // NOLINT(google-explicit-constructor): it is the number
  /// The only element of `value`, which must not change afterwards. On a GPU it is ready in the
  /// order of the device's current stream; a CPU tensor is read now.
  explicit Pending(const at::Tensor& value);

  /// The number. Waits for the device if it is still there; later calls do not wait.
  [[nodiscard]] T item() const;
  operator T() const { return item(); }  // NOLINT(google-explicit-constructor)

  /// The number as a zero-dimensional tensor, without waiting: on its device if it has not been
  /// read, otherwise on the CPU.
  [[nodiscard]] at::Tensor tensor() const;
  /// Whether item() would read a device.
  [[nodiscard]] bool is_on_device() const noexcept { return tensor_.defined(); }

  /// The sum and the product, without waiting, in the order of the device's current stream. Of
  /// double only.
  Pending& operator+=(const Pending& other);
  [[nodiscard]] Pending times(double factor) const;

 private:
  mutable T value_{};
  mutable at::Tensor tensor_;  // zero-dimensional; undefined once it has been read
  std::optional<c10::Stream> stream_;
};

extern template class Pending<double>;
extern template class Pending<bool>;

}  // namespace lockstep
