#include "lockstep/flat/gradient_slot.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

namespace autograd = torch::autograd;

struct GradientSlots::Shared {
  GradientListener* listener = nullptr;
};

// The last sequence number makes the engine run a node as soon as its gradient is there, as it does
// LibTorch's accumulators: hooks come while the rest of backward still computes.
class GradientSlots::Node final : public autograd::Node {
 public:
  Node(int index, Place place, std::shared_ptr<Shared> shared)
      : autograd::Node(UINT64_MAX),
        index_(index),
        place_(std::move(place)),
        data_(place_.parameter.const_data_ptr()),
        shared_(std::move(shared)) {
    add_input_metadata(place_.parameter);
  }

  std::vector<std::unique_ptr<autograd::FunctionPreHook>>& tensor_pre_hooks() noexcept override {
    return autograd::impl::hooks(place_.parameter);
  }

  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    auto& gradient = gradients.at(0);
    const bool defined = gradient.defined() && place_.parameter.requires_grad();
    if (defined) {
      expect_in_place();
      const at::NoGradGuard off;
      take(gradient);
      gradient.reset();
    }
    // As LibTorch's accumulator does for its users.
    if (auto& hook = autograd::impl::post_acc_grad_hooks(place_.parameter)) {
      (*hook)(place_.parameter);
    }
    if (shared_->listener != nullptr) shared_->listener->gradient_came(index_, defined);
    return {};
  }

  [[nodiscard]] bool is_live() const {
    const auto& gradient = place_.parameter.grad();
    return gradient.defined() && is_slot(gradient);
  }
  void make_live() const { place_.parameter.mutable_grad() = place_.gradient; }
  bool take_in() {
    const auto& gradient = place_.parameter.grad();
    if (!gradient.defined() || is_slot(gradient)) return false;
    const at::NoGradGuard off;
    non_finite_ = copy_noting_non_finite(place_.gradient, gradient);
    make_live();
    return true;
  }
  [[nodiscard]] bool non_finite() const noexcept { return non_finite_; }
  [[nodiscard]] bool is_in_place() const {
    return place_.parameter.const_data_ptr() == data_ &&
           place_.parameter.scalar_type() == place_.gradient.scalar_type() &&
           autograd::impl::try_get_grad_accumulator(place_.parameter).get() == this;
  }

 private:
  [[nodiscard]] bool is_slot(const at::Tensor& gradient) const {
    return gradient.layout() == at::kStrided &&
           gradient.const_data_ptr() == place_.gradient.const_data_ptr() &&
           gradient.sizes() == place_.gradient.sizes();
  }

  void take(const at::Tensor& gradient) {
    (void)take_in();
    if (is_live()) {
      non_finite_ = add_noting_non_finite(place_.gradient, gradient) || non_finite_;
    } else {
      non_finite_ = copy_noting_non_finite(place_.gradient, gradient);
      make_live();
    }
  }

  void expect_in_place() const {
    if (place_.parameter.const_data_ptr() == data_) return;
    throw UsageError(fmt::format(
        "parameter {} no longer lies in library memory: to(), set_data and torch::load move it. "
        "Do that before the model is handed over, or call adopt() on all ranks afterwards",
        place_.name));
  }

  const int index_;
  const Place place_;
  const void* const data_;
  bool non_finite_ = false;
  const std::shared_ptr<Shared> shared_;
};

GradientSlots::GradientSlots(std::vector<Place> places) : shared_(std::make_shared<Shared>()) {
  for (auto& place : places) {
    const auto parameter = place.parameter;
    auto node = std::make_shared<Node>(static_cast<int>(nodes_.size()), std::move(place), shared_);
    autograd::impl::set_grad_accumulator(parameter, node);  // which holds it weakly
    (void)node->take_in();
    nodes_.push_back(std::move(node));
  }
}

GradientSlots::~GradientSlots() { shared_->listener = nullptr; }

void GradientSlots::listen(GradientListener* listener) noexcept { shared_->listener = listener; }

bool GradientSlots::is_live(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->is_live();
}
void GradientSlots::make_live(int index) const {
  nodes_[static_cast<std::size_t>(index)]->make_live();
}
bool GradientSlots::take_in(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->take_in();
}
bool GradientSlots::non_finite(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->non_finite();
}
bool GradientSlots::is_in_place(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->is_in_place();
}

}  // namespace lockstep
