// What a forward depends on besides its inputs and parameters, so that it can be run again under
// the same: generators, autocast, buffers.
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

/// Autocast on the CPU and on `device`, as one scope: restored where this is made, and back as it
/// was at the end of the block.
struct AutocastStates {
  AutocastState cpu;
  std::optional<AutocastState> other;

  [[nodiscard]] static AutocastStates now(at::Device device);
};

/// Values that buffers had. Restoring them is invisible to autograd's version counters: graphs that
/// hold a buffer stay good.
class BufferValues {
 public:
  [[nodiscard]] static BufferValues of(const std::vector<at::Tensor>& buffers);
  /// Forgets buffers that still have their value. On other devices than the CPU the question would
  /// cost a wait, and all are kept.
  void drop_unchanged();
  /// The present values of the buffers that are held here.
  [[nodiscard]] BufferValues present() const;
  void restore() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> values_;  // buffer, value
};

}  // namespace lockstep
