#include "lockstep/flat/gradient_slot.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "lockstep/flat/gradient_node_internal.h"

namespace lockstep {

namespace autograd = torch::autograd;

// Stays with a parameter after its slot has been destroyed, for when_gone().
class GradientSlots::AfterEnd final : public autograd::PostAccumulateGradHook {
 public:
  AfterEnd(std::string name, std::shared_ptr<Shared> shared,
           std::unique_ptr<PostAccumulateGradHook> user_hook)
      : name_(std::move(name)), shared_(std::move(shared)), user_hook_(std::move(user_hook)) {}

  void operator()(const at::Tensor& parameter) override {
    if (const auto report = std::exchange(shared_->when_gone, nullptr)) report(name_);
    if (user_hook_) (*user_hook_)(parameter);
  }

  static void install(const Entry& entry, const std::shared_ptr<Shared>& shared) {
    auto user_hook = std::move(autograd::impl::post_acc_grad_hooks(entry.parameter));
    autograd::impl::set_post_acc_grad_hooks(
        entry.parameter, std::make_unique<AfterEnd>(entry.name, shared, std::move(user_hook)));
  }
  /// The user's hook inside `hook` if that is an AfterEnd, otherwise `hook` itself.
  static std::unique_ptr<PostAccumulateGradHook> user_hook_of(
      std::unique_ptr<PostAccumulateGradHook> hook) {
    auto* own = dynamic_cast<AfterEnd*>(hook.get());
    return own == nullptr ? std::move(hook) : std::move(own->user_hook_);
  }

 private:
  std::string name_;
  std::shared_ptr<Shared> shared_;  // with the model's other parameters
  std::unique_ptr<PostAccumulateGradHook> user_hook_;
};

GradientSlots::Sentinel::Sentinel(std::weak_ptr<Node> node,
                                  std::unique_ptr<PostAccumulateGradHook> user_hook)
    : node_(std::move(node)), user_hook_(std::move(user_hook)) {}

void GradientSlots::Sentinel::operator()(const at::Tensor& parameter) {
  if (const auto node = node_.lock()) node->gradient_bypassed_node();
  call_user_hook(parameter);
}

void GradientSlots::Sentinel::call_user_hook(const at::Tensor& parameter) const {
  if (user_hook_) (*user_hook_)(parameter);
}

void GradientSlots::Sentinel::install(const std::shared_ptr<Node>& node) {
  const auto& parameter = node->entry().parameter;
  auto user_hook =
      AfterEnd::user_hook_of(std::move(autograd::impl::post_acc_grad_hooks(parameter)));
  autograd::impl::set_post_acc_grad_hooks(parameter,
                                          std::make_unique<Sentinel>(node, std::move(user_hook)));
}

void GradientSlots::Sentinel::remove(const std::shared_ptr<Node>& node) {
  auto& hook = autograd::impl::post_acc_grad_hooks(node->entry().parameter);
  auto* own = dynamic_cast<Sentinel*>(hook.get());
  if (own == nullptr || own->node_.lock() != node) return;
  auto user_hook = std::move(own->user_hook_);
  hook = std::move(user_hook);
}

GradientSlots::GradientSlots(std::vector<Entry> entries)
    : shared_(std::make_shared<Shared>(entries.size())) {
  for (auto& entry : entries) {
    const auto parameter = entry.parameter;
    auto node = std::make_shared<Node>(static_cast<int>(nodes_.size()), std::move(entry), shared_);
    autograd::impl::set_grad_accumulator(parameter, node);  // holds a weak pointer
    (void)node->move_in_assigned();
    Sentinel::install(node);
    shared_->nodes.push_back(node);
    nodes_.push_back(std::move(node));
  }
  shared_->gather.flush();
}

GradientSlots::~GradientSlots() {
  shared_->listener = nullptr;
  shared_->in_use = false;
  for (const auto& node : nodes_) {
    Sentinel::remove(node);
    if (shared_->when_gone) AfterEnd::install(node->entry(), shared_);
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
  flush();
  for (const auto& node : nodes_) node->use_buffer(static_cast<std::size_t>(buffer));
  flush();
}
void GradientSlots::discard() const noexcept {
  for (const auto& node : nodes_) node->discard();
}
void GradientSlots::drop(int buffer) const noexcept {
  for (const auto& node : nodes_) node->drop(static_cast<std::size_t>(buffer));
}

void GradientSlots::mark_stale(int buffer) const noexcept {
  shared_->gather.begin_notes();
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
bool GradientSlots::is_bound(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->is_bound();
}
bool GradientSlots::non_finite(int index, int buffer) const {
  return nodes_[static_cast<std::size_t>(index)]->non_finite(static_cast<std::size_t>(buffer));
}
GradientState GradientSlots::move_to(int index, int buffer, const at::Tensor& to) const {
  return nodes_[static_cast<std::size_t>(index)]->move_to(static_cast<std::size_t>(buffer), to);
}
std::vector<bool> GradientSlots::read_non_finite() const { return shared_->gather.read_notes(); }
void GradientSlots::flush() const { shared_->gather.flush(); }
void GradientSlots::use_current_stream() const {
  for (const auto& node : nodes_) node->use_current_stream();
}
GradientState GradientSlots::collect(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->collect();
}
bool GradientSlots::move_in_assigned(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->move_in_assigned();
}
void GradientSlots::bind(int index) const { nodes_[static_cast<std::size_t>(index)]->bind(); }
const GradientSlots::Entry& GradientSlots::entry(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->entry();
}
bool GradientSlots::is_in_place(int index) const {
  return nodes_[static_cast<std::size_t>(index)]->is_in_place();
}

}  // namespace lockstep
