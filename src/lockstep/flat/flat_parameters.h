// A model's parameters and gradients in registered memory: one long stretch of each per dtype and
// device, that every rank of the host has mapped. The tensors stay who they are; only their memory
// moves here, once, and never again while this lives. Reductions, optimizers, checkpoints and later
// shards work on ranges of it; layout.h says where what lies.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/gradient_slot.h"
#include "lockstep/flat/layout.h"
#include "lockstep/flat/observed_module.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

struct FlatParameter {
  std::string name = {};   // as the module has it; of several names for one tensor the first
  at::Tensor tensor = {};  // the module's own
  // Its slot in the buffer in use, shaped as the parameter; `.grad` is this once one came.
  at::Tensor gradient = {};
  Slot slot = {};
};

/// Parameters that follow each other in one segment: elements [begin, end) of it. Padding between
/// them is zero, in parameters and gradients.
struct FlatRange {
  int segment = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<int> parameters = {};  // in the order of their slots
};

struct FlatOptions {
  // One is in use at a time: what came into another stays there, to be reduced or stepped with
  // while backward() writes to this one.
  int gradient_buffers = 1;
};

class FlatParameters {
 public:
  /// Takes the parameters of `module` and its submodules. Values and gradients stay what they are.
  /// Collective: every rank calls this with an equal model: names, shapes, dtypes, strides and
  /// requires_grad are compared. Throws PeerError that names the first parameter that differs and
  /// the rank; UsageError for a model without parameters, for parameters that are not floating
  /// point, or already in some other flat memory, and for less than one buffer of gradients.
  FlatParameters(torch::nn::Module& module, const ProcessGroup& group,
                 const FlatOptions& options = {});
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;
  ~FlatParameters();

  /// By number of registration.
  [[nodiscard]] std::span<const FlatParameter> parameters() const noexcept { return parameters_; }
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] int num_segments() const noexcept {
    return static_cast<int>(layout_.segments.size());
  }

  /// The whole segment, one-dimensional; gradients in the buffer in use, or in `buffer`.
  [[nodiscard]] const at::Tensor& values(int segment) const;
  [[nodiscard]] const at::Tensor& gradients(int segment) const;
  [[nodiscard]] const at::Tensor& gradients(int segment, int buffer) const;

  [[nodiscard]] int num_gradient_buffers() const noexcept { return options_.gradient_buffers; }
  /// The one in use.
  [[nodiscard]] int gradient_buffer() const noexcept { return buffer_; }
  /// Between backwards: gradients come into `buffer` from now on, and `.grad` of every parameter,
  /// `parameters()` and what walks over gradients are those of that buffer.
  /// Throws UsageError when there is no such buffer.
  void use_gradient_buffer(int buffer);

  /// Maximal ranges of parameters that have a gradient in their slot now.
  [[nodiscard]] std::vector<FlatRange> live_gradients() const;

  [[nodiscard]] GradientSlots& slots() noexcept { return *slots_; }
  [[nodiscard]] const GradientSlots& slots() const noexcept { return *slots_; }

  /// Names of parameters that are no longer in this memory, or no longer the module's: to(),
  /// set_data, torch::load or replace_module took them away. None when the module is gone.
  [[nodiscard]] std::vector<std::string> strays() const;
  /// Names of parameters that train and that the module has registered since they were laid out:
  /// nothing reduces their gradients. None when the module is gone.
  [[nodiscard]] std::vector<std::string> added() const;
  /// Throws UsageError with those names and what to do, where there are any.
  void expect_in_place() const;

  /// Takes strays back, with their present values. Collective. Throws PeerError when the ranks'
  /// models differ, UsageError when names, shapes or dtypes are not what was laid out.
  void adopt();
  /// Moves everything to memory of another group. Collective among its ranks.
  void rebind(const ProcessGroup& group);

 private:
  void compare_with_peers(const std::vector<ParameterFacts>& facts) const;
  void move_in();
  void allocate();

  ObservedModule module_;
  ProcessGroup group_;
  FlatOptions options_;
  std::vector<FlatParameter> parameters_;
  std::vector<ParameterFacts> facts_;  // as laid out
  Layout layout_;
  std::vector<at::Tensor> values_;                  // by segment
  std::vector<std::vector<at::Tensor>> gradients_;  // by buffer and segment
  std::vector<std::vector<at::Tensor>> views_;      // by parameter and buffer
  int buffer_ = 0;                                  // in use
  std::unique_ptr<GradientSlots> slots_;
};

}  // namespace lockstep
