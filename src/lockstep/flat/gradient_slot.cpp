#include "lockstep/flat/gradient_slot.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

namespace autograd = torch::autograd;

struct GradientSlots::Shared {
  GradientListener* listener = nullptr;
  bool in_use = true;  // false when the slots are gone and only graphs still have nodes
  std::function<void(const std::string& name)> when_gone;
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
        kept_(place_.gradients.size()),
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
      if (!lies_where_it_was()) refuse_stray();
      expect_no_graph(gradient);
      const at::NoGradGuard off;
      take(gradient);
      gradient.reset();
    }
    call_hooks_of_users();
    if (auto* listener = shared_->listener; listener != nullptr) {
      listener->attend();
      if (defined) {
        listener->gradient_came(index_);
      } else {
        listener->no_gradient_came(index_);
      }
    }
    return {};
  }

  /// LibTorch's own accumulator has run for the parameter: in a graph that is older than the slot,
  /// or since the parameter lost this node.
  void gradient_went_elsewhere() {
    if (!shared_->in_use) return;
    if (!is_in_place()) refuse_stray();
    if (!take_in()) note_.non_finite = has_non_finite(slot());
    auto* listener = shared_->listener;
    if (listener != nullptr) listener->attend();
    note_.fresh = true;
    if (listener != nullptr) listener->gradient_came(index_);
  }

  [[nodiscard]] GradientState state() const {
    const auto& gradient = place_.parameter.grad();
    if (!gradient.defined()) return GradientState::absent;
    if (!is_slot(gradient)) return GradientState::assigned;
    return note_.fresh ? GradientState::fresh : GradientState::stale;
  }
  [[nodiscard]] GradientState state(std::size_t buffer) const {
    if (buffer == buffer_) return state();
    if (!kept_[buffer].live) return GradientState::absent;
    return kept_[buffer].note.fresh ? GradientState::fresh : GradientState::stale;
  }
  [[nodiscard]] bool is_live() const {
    const auto now = state();
    return now == GradientState::stale || now == GradientState::fresh;
  }
  void use_buffer(std::size_t buffer) {
    if (buffer == buffer_) return;
    (void)take_in();
    kept_[buffer_] = {is_live(), note_};
    buffer_ = buffer;
    note_ = kept_[buffer].note;
    place_.parameter.mutable_grad() = kept_[buffer].live ? slot() : at::Tensor();
  }
  void drop(std::size_t buffer) noexcept { kept_[buffer] = {}; }
  void mark_stale(std::size_t buffer) noexcept {
    (buffer == buffer_ ? note_ : kept_[buffer].note).fresh = false;
  }
  GradientState collect() {
    if (take_in()) note_.fresh = true;
    const auto now = state();
    if (now == GradientState::absent) note_.fresh = false;  // the user dropped what came
    return now;
  }
  void make_live() const { place_.parameter.mutable_grad() = slot(); }
  bool take_in() {
    const auto& gradient = place_.parameter.grad();
    if (!gradient.defined() || is_slot(gradient)) return false;
    const at::NoGradGuard off;
    note_.non_finite = copy_noting_non_finite(slot(), gradient);
    make_live();
    return true;
  }
  [[nodiscard]] bool non_finite() const noexcept { return note_.non_finite; }
  [[nodiscard]] const Place& place() const noexcept { return place_; }
  [[nodiscard]] bool is_in_use() const noexcept { return shared_->in_use; }
  [[nodiscard]] const at::Tensor& parameter() const noexcept { return place_.parameter; }
  [[nodiscard]] const std::string& parameter_name() const noexcept { return place_.name; }
  [[nodiscard]] bool is_in_place() const {
    return lies_where_it_was() && place_.parameter.scalar_type() == slot().scalar_type() &&
           autograd::impl::try_get_grad_accumulator(place_.parameter).get() == this;
  }

 private:
  [[nodiscard]] bool is_slot(const at::Tensor& gradient) const {
    return gradient.layout() == at::kStrided &&
           gradient.const_data_ptr() == slot().const_data_ptr() &&
           gradient.sizes() == slot().sizes();
  }
  [[nodiscard]] const at::Tensor& slot() const { return place_.gradients[buffer_]; }

  void take(const at::Tensor& gradient) {
    if (auto* listener = shared_->listener; listener != nullptr) {
      listener->attend();
      listener->gradient_comes(index_, state());
    }
    const bool adds = place_.parameter.grad().defined();
    (void)take_in();
    if (adds) {
      note_.non_finite = add_noting_non_finite(slot(), gradient);
    } else {
      note_.non_finite = copy_noting_non_finite(slot(), gradient);
      make_live();
    }
    note_.fresh = true;
  }

  [[nodiscard]] bool lies_where_it_was() const {
    return place_.parameter.const_data_ptr() == data_;
  }

  [[noreturn]] void refuse_stray() const {
    throw UsageError(fmt::format(
        "parameter {} no longer lies in registered memory: to(), set_data and torch::load move it. "
        "Do that before the model is handed over, or call adopt() on all ranks afterwards",
        place_.name));
  }

  // A slot is memory, and memory is part of no graph.
  void expect_no_graph(const at::Tensor& gradient) const {
    if (!at::GradMode::is_enabled() || !gradient.requires_grad()) return;
    throw UsageError(fmt::format(
        "backward() with create_graph would make the gradient of parameter {} part of a graph, "
        "which gradients in registered memory cannot be: take gradients that a loss is made of with "
        "torch::autograd::grad()",
        place_.name));
  }

  void call_hooks_of_users();

  // What is known of a slot besides its memory.
  struct Note {
    bool fresh = false;  // something came since mark_stale(), though the user may have dropped it
    bool non_finite = false;
  };
  // Of a buffer while another is in use.
  struct Kept {
    bool live = false;
    Note note = {};
  };

  const int index_;
  const Place place_;
  const void* const data_;
  std::size_t buffer_ = 0;  // in use
  Note note_;
  std::vector<Kept> kept_;  // by buffer
  const std::shared_ptr<Shared> shared_;
};

// Stays with a parameter when its slot is gone.
class GradientSlots::AfterEnd final : public autograd::PostAccumulateGradHook {
 public:
  AfterEnd(std::string name, std::shared_ptr<Shared> shared,
           std::unique_ptr<PostAccumulateGradHook> of_user)
      : name_(std::move(name)), shared_(std::move(shared)), of_user_(std::move(of_user)) {}

  void operator()(const at::Tensor& parameter) override {
    if (const auto report = std::exchange(shared_->when_gone, nullptr)) report(name_);
    if (of_user_) (*of_user_)(parameter);
  }

  static void put(const Node& node, const std::shared_ptr<Shared>& shared) {
    auto& place = autograd::impl::post_acc_grad_hooks(node.parameter());
    auto of_user = std::move(place);
    autograd::impl::set_post_acc_grad_hooks(
        node.parameter(),
        std::make_unique<AfterEnd>(node.parameter_name(), shared, std::move(of_user)));
  }
  /// `hook`, or the user's hook where it is one of these.
  static std::unique_ptr<PostAccumulateGradHook> without(
      std::unique_ptr<PostAccumulateGradHook> hook) {
    auto* own = dynamic_cast<AfterEnd*>(hook.get());
    return own == nullptr ? std::move(hook) : std::move(own->of_user_);
  }

 private:
  std::string name_;
  std::shared_ptr<Shared> shared_;  // with the other parameters
  std::unique_ptr<PostAccumulateGradHook> of_user_;
};

// Called by LibTorch's own accumulator, which has run only when a gradient passed the slot by.
class GradientSlots::Sentinel final : public autograd::PostAccumulateGradHook {
 public:
  Sentinel(std::weak_ptr<Node> node, std::unique_ptr<PostAccumulateGradHook> of_user)
      : node_(std::move(node)), of_user_(std::move(of_user)) {}

  void operator()(const at::Tensor& parameter) override {
    if (const auto node = node_.lock()) node->gradient_went_elsewhere();
    call_hook_of_user(parameter);
  }
  void call_hook_of_user(const at::Tensor& parameter) const {
    if (of_user_) (*of_user_)(parameter);
  }

  static void put(const std::shared_ptr<Node>& node) {
    auto& place = autograd::impl::post_acc_grad_hooks(node->parameter());
    auto of_user = AfterEnd::without(std::move(place));
    autograd::impl::set_post_acc_grad_hooks(node->parameter(),
                                            std::make_unique<Sentinel>(node, std::move(of_user)));
  }
  static void remove(const std::shared_ptr<Node>& node) {
    auto& place = autograd::impl::post_acc_grad_hooks(node->parameter());
    auto* own = dynamic_cast<Sentinel*>(place.get());
    if (own == nullptr || own->node_.lock() != node) return;
    auto of_user = std::move(own->of_user_);
    place = std::move(of_user);
  }

 private:
  std::weak_ptr<Node> node_;
  std::unique_ptr<PostAccumulateGradHook> of_user_;
};

// As LibTorch's accumulator does.
void GradientSlots::Node::call_hooks_of_users() {
  auto& hook = autograd::impl::post_acc_grad_hooks(place_.parameter);
  if (!hook) return;
  if (const auto* sentinel = dynamic_cast<const Sentinel*>(hook.get())) {
    sentinel->call_hook_of_user(place_.parameter);
  } else {
    (*hook)(place_.parameter);
  }
}

GradientSlots::GradientSlots(std::vector<Place> places) : shared_(std::make_shared<Shared>()) {
  for (auto& place : places) {
    const auto parameter = place.parameter;
    auto node = std::make_shared<Node>(static_cast<int>(nodes_.size()), std::move(place), shared_);
    autograd::impl::set_grad_accumulator(parameter, node);  // which holds it weakly
    (void)node->take_in();
    Sentinel::put(node);
    nodes_.push_back(std::move(node));
  }
}

GradientSlots::~GradientSlots() {
  shared_->listener = nullptr;
  shared_->in_use = false;
  for (const auto& node : nodes_) {
    Sentinel::remove(node);
    if (shared_->when_gone) AfterEnd::put(*node, shared_);
  }
}

bool GradientSlots::has_slot(const at::Tensor& parameter) {
  const auto node =
      std::dynamic_pointer_cast<Node>(autograd::impl::try_get_grad_accumulator(parameter));
  return node && node->is_in_use();
}

void GradientSlots::when_gone(std::function<void(const std::string& name)> report) {
  shared_->when_gone = std::move(report);
}

void GradientSlots::listen(GradientListener* listener) noexcept { shared_->listener = listener; }

void GradientSlots::use_buffer(int buffer) const {
  for (const auto& node : nodes_) node->use_buffer(static_cast<std::size_t>(buffer));
}
void GradientSlots::drop(int buffer) const noexcept {
  for (const auto& node : nodes_) node->drop(static_cast<std::size_t>(buffer));
}

void GradientSlots::mark_stale(int buffer) const noexcept {
  for (const auto& node : nodes_) node->mark_stale(static_cast<std::size_t>(buffer));
}

GradientState GradientSlots::state(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->state();
}
GradientState GradientSlots::state(int index, int buffer) const {
  return nodes_[static_cast<std::size_t>(index)]->state(static_cast<std::size_t>(buffer));
}
bool GradientSlots::any(GradientState state, int buffer) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    return node->state(static_cast<std::size_t>(buffer)) == state;
  });
}
bool GradientSlots::is_live(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->is_live();
}
bool GradientSlots::non_finite(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->non_finite();
}
GradientState GradientSlots::collect(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->collect();
}
bool GradientSlots::take_in(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->take_in();
}
void GradientSlots::make_live(int index) const {
  nodes_[static_cast<std::size_t>(index)]->make_live();
}
const GradientSlots::Place& GradientSlots::place(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->place();
}
bool GradientSlots::is_in_place(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->is_in_place();
}

}  // namespace lockstep
