// The autograd node that takes one parameter's gradients in place of LibTorch's accumulator
// (gradient_slot.h), and what all nodes of a model share.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/flat/device_gather_internal.h"
#include "lockstep/flat/gradient_slot.h"

namespace lockstep {

struct GradientSlots::Shared final : std::enable_shared_from_this<Shared> {
  explicit Shared(std::size_t num_parameters) : gather(num_parameters) {}

  /// Called in a backward(): gradients that have not been written when it ends are written then.
  void flush_at_end();

  GradientListener* listener = nullptr;
  bool in_use = true;  // false after ~GradientSlots(), when only graphs still refer to the nodes
  std::function<void(const std::string& name)> when_gone;
  DeviceGather gather;
  std::vector<std::weak_ptr<Node>> nodes;
  int flushed_task = -1;  // the graph that flushes at its end
};

class GradientSlots::Node final : public torch::autograd::Node {
 public:
  Node(int index, Entry entry, std::shared_ptr<Shared> shared);

  std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>& tensor_pre_hooks() noexcept
      override;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  /// Called when LibTorch's accumulator has run for this parameter: in a graph that was built
  /// before the node was installed, or after the parameter lost the node.
  void gradient_bypassed_node();

  // The functions of GradientSlots, for one parameter.
  [[nodiscard]] GradientState state() const;
  [[nodiscard]] GradientState state(std::size_t buffer) const;
  [[nodiscard]] bool is_bound() const;
  void use_buffer(std::size_t buffer);
  void discard() noexcept;
  void drop(std::size_t buffer) noexcept;
  void mark_stale(std::size_t buffer) noexcept;
  GradientState collect();
  GradientState move_to(std::size_t buffer, const at::Tensor& to);
  bool move_in_assigned();
  void bind() const { entry_.parameter.mutable_grad() = slot(); }
  [[nodiscard]] bool non_finite(std::size_t buffer) const noexcept {
    return (buffer == buffer_ ? note_ : kept_[buffer].note).non_finite;
  }
  [[nodiscard]] bool is_in_place() const;
  /// From now on autograd runs this node on the current stream of its device.
  void use_current_stream();

  [[nodiscard]] const Entry& entry() const noexcept { return entry_; }
  [[nodiscard]] bool is_in_use() const noexcept { return shared_->in_use; }

 private:
  [[nodiscard]] const at::Tensor& slot() const { return slots_[buffer_]; }
  [[nodiscard]] bool is_slot(const at::Tensor& gradient) const;
  [[nodiscard]] bool has_same_memory() const;
  void accept(const at::Tensor& gradient);
  /// Writes `gradient` to the slot, or adds it. Returns whether that is non-finite, if it is known.
  [[nodiscard]] bool write(const at::Tensor& gradient, bool adds);
  /// Gives a loose slot its memory: that of `gradient` if nothing else refers to it and it has the
  /// form of the slot, otherwise new memory. Returns whether it is that of `gradient`.
  [[nodiscard]] bool hold(const at::Tensor& gradient);
  void call_user_hooks();
  [[noreturn]] void refuse_moved_parameter() const;
  void expect_no_graph(const at::Tensor& gradient) const;

  // What is known of a slot besides its memory.
  struct Note {
    bool fresh = false;  // a gradient arrived since mark_stale(); the user may have dropped it
    bool non_finite = false;
  };
  // The same for a buffer that is not current.
  struct Kept {
    bool bound = false;
    Note note = {};
  };

  const int index_;
  const Entry entry_;
  std::vector<at::Tensor> slots_;  // by buffer
  const bool is_loose_;
  const at::ScalarType dtype_;
  // Where the parameter was when the node was made. The memory of a storage may change.
  const c10::StorageImpl* const storage_;
  const std::int64_t offset_;
  std::size_t buffer_ = 0;  // the current one
  Note note_;
  std::vector<Kept> kept_;  // by buffer
  const std::shared_ptr<Shared> shared_;
};

/// Replaces the hook that LibTorch's accumulator calls after a gradient. That accumulator runs only
/// when a gradient has bypassed the node.
class GradientSlots::Sentinel final : public torch::autograd::PostAccumulateGradHook {
 public:
  Sentinel(std::weak_ptr<Node> node, std::unique_ptr<PostAccumulateGradHook> user_hook);

  void operator()(const at::Tensor& parameter) override;
  [[nodiscard]] bool has_user_hook() const noexcept { return user_hook_ != nullptr; }
  void call_user_hook(const at::Tensor& parameter) const;

  static void install(const std::shared_ptr<Node>& node);
  static void remove(const std::shared_ptr<Node>& node);

 private:
  std::weak_ptr<Node> node_;
  std::unique_ptr<PostAccumulateGradHook> user_hook_;
};

}  // namespace lockstep
