// The state that a forward depends on besides its inputs and parameters, to run it again under the
// same conditions: generators, autocast, buffers.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/train/autocast.h"

namespace lockstep {

/// The states of the default generators of the CPU and of `device`.
class GeneratorStates {
 public:
  [[nodiscard]] static GeneratorStates now(at::Device device);
  void restore() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// The state of autocast on the CPU and on `device`.
struct AutocastStates {
  AutocastState cpu;
  std::optional<AutocastState> other;

  [[nodiscard]] static AutocastStates now(at::Device device);
};

/// Saved values of buffers. Restoring them does not change autograd's version counters, so graphs
/// that have saved a buffer stay valid.
class BufferValues {
 public:
  [[nodiscard]] static BufferValues of(const std::vector<at::Tensor>& buffers);
  /// Drops buffers whose value has not changed. On devices other than the CPU the comparison would
  /// wait for the device, so all buffers are kept.
  void drop_unchanged();
  /// The current values of the same buffers.
  [[nodiscard]] BufferValues present() const;
  void restore() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> values_;  // buffer, value
};

}  // namespace lockstep
