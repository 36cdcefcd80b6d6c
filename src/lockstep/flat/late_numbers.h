// Numbers that a GPU computes and the host reads some steps later, when they have arrived, so that
// it never waits for the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <span>

namespace lockstep {

class LateNumbers {
 public:
  /// Copies `numbers`, zero-dimensional int64 tensors of any device, to the host, in the order of
  /// the current stream of the first GPU among them. At least one is on a GPU.
  explicit LateNumbers(std::span<const at::Tensor> numbers);

  /// Does not wait.
  [[nodiscard]] bool have_arrived() const { return copied_.query(); }
  /// In the order of the constructor. Valid if have_arrived().
  [[nodiscard]] std::span<const std::int64_t> values() const;

 private:
  at::Tensor values_;  // in pinned memory
  c10::Event copied_;
};

}  // namespace lockstep
