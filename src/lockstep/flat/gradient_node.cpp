#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/flat/gradient_node_internal.h"
#include "lockstep/flat/like_internal.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

namespace autograd = torch::autograd;

namespace {

// A callback at the end of a graph. It is destroyed with the graph, called or not.
template <typename Shared>
class FlushAtEnd {
 public:
  explicit FlushAtEnd(const std::shared_ptr<Shared>& shared) : shared_(shared) {}
  FlushAtEnd(const FlushAtEnd&) = delete;
  FlushAtEnd& operator=(const FlushAtEnd&) = delete;
  // After a failure the slots hold what had arrived, as on the CPU.
  ~FlushAtEnd() {
    const auto shared = called_ ? nullptr : shared_.lock();
    if (!shared) return;
    try {
      shared->gather.flush();
    } catch (const std::exception&) {
      // backward() throws its own error; the device reports itself in the next call.
    }
  }

  void call() {
    called_ = true;
    const auto shared = shared_.lock();
    if (!shared) return;
    shared->gather.flush();
    // The current stream is that of the caller: its next backward() has no other stream to wait
    // for.
    for (const auto& each : shared->nodes) {
      if (const auto node = each.lock()) node->use_current_stream();
    }
  }

 private:
  std::weak_ptr<Shared> shared_;
  bool called_ = false;
};

// Whether nothing else refers to the memory of a gradient, and that has no room for more. The
// gradient of a Linear's weight is a view: its base, which nothing else refers to, is the second.
bool is_sole_owner(const at::Tensor& gradient) {
  if (gradient.layout() != at::kStrided || gradient.use_count() != 1) return false;
  const auto& storage = gradient.storage();
  if (storage.nbytes() != gradient.nbytes()) return false;
  return storage.use_count() == 1 ||
         (storage.use_count() == 2 && gradient.is_view() && gradient._base().use_count() == 1);
}

}  // namespace

void GradientSlots::Shared::flush_at_end() {
  const int task = autograd::get_current_graph_task_id();
  if (task == flushed_task || task < 0) return;
  flushed_task = task;
  const auto end = std::make_shared<FlushAtEnd<Shared>>(shared_from_this());
  autograd::Engine::get_default_engine().queue_callback([end] { end->call(); });
}

// With the highest sequence number, autograd runs a node as soon as its gradient is ready,
// as it does for LibTorch's accumulators: listeners are called while backward() still computes.
GradientSlots::Node::Node(int index, Entry entry, std::shared_ptr<Shared> shared)
    : autograd::Node(UINT64_MAX),
      index_(index),
      entry_(std::move(entry)),
      slots_(entry_.gradients),
      is_loose_(!slots_.front().defined()),
      dtype_(entry_.parameter.scalar_type()),
      storage_(entry_.parameter.storage().unsafeGetStorageImpl()),
      offset_(entry_.parameter.storage_offset()),
      kept_(entry_.gradients.size()),
      shared_(std::move(shared)) {
  add_input_metadata(entry_.parameter);
}

std::vector<std::unique_ptr<autograd::FunctionPreHook>>&
GradientSlots::Node::tensor_pre_hooks() noexcept {
  return autograd::impl::hooks(entry_.parameter);
}

autograd::variable_list GradientSlots::Node::apply(autograd::variable_list&& gradients) {
  auto& gradient = gradients.at(0);
  const bool defined = gradient.defined() && entry_.parameter.requires_grad();
  if (defined) {
    if (!has_same_memory()) refuse_moved_parameter();
    expect_no_graph(gradient);
    const at::NoGradGuard off;
    accept(gradient);  // a loose slot may keep its memory
    gradient.reset();
  }
  call_user_hooks();
  if (auto* listener = shared_->listener; listener != nullptr) {
    listener->on_backward();
    if (defined) {
      listener->after_gradient(index_);
    } else {
      listener->after_undefined_gradient(index_);
    }
  }
  return {};
}

void GradientSlots::Node::gradient_bypassed_node() {
  if (!shared_->in_use) return;
  if (!is_in_place()) refuse_moved_parameter();
  if (!move_in_assigned() && entry_.parameter.is_cpu()) note_.non_finite = has_non_finite(slot());
  shared_->gather.flush();  // a user's hook follows
  auto* listener = shared_->listener;
  if (listener != nullptr) listener->on_backward();
  note_.fresh = true;
  if (listener != nullptr) listener->after_gradient(index_);
}

GradientState GradientSlots::Node::state() const {
  const auto& gradient = entry_.parameter.grad();
  if (!gradient.defined()) return GradientState::absent;
  if (!is_slot(gradient)) return GradientState::assigned;
  return note_.fresh ? GradientState::fresh : GradientState::stale;
}

GradientState GradientSlots::Node::state(std::size_t buffer) const {
  if (buffer == buffer_) return state();
  if (!kept_[buffer].bound) return GradientState::absent;
  return kept_[buffer].note.fresh ? GradientState::fresh : GradientState::stale;
}

bool GradientSlots::Node::is_bound() const {
  const auto now = state();
  return now == GradientState::stale || now == GradientState::fresh;
}

void GradientSlots::Node::use_buffer(std::size_t buffer) {
  if (buffer == buffer_) return;
  (void)move_in_assigned();
  kept_[buffer_] = {is_bound(), note_};
  buffer_ = buffer;
  note_ = kept_[buffer].note;
  entry_.parameter.mutable_grad() = kept_[buffer].bound ? slot() : at::Tensor();
}

void GradientSlots::Node::discard() noexcept {
  if (is_bound()) entry_.parameter.mutable_grad().reset();
  if (is_loose_) slots_[buffer_].reset();
  note_ = {};
}

void GradientSlots::Node::drop(std::size_t buffer) noexcept {
  kept_[buffer] = {};
  if (is_loose_) slots_[buffer].reset();
}

void GradientSlots::Node::mark_stale(std::size_t buffer) noexcept {
  (buffer == buffer_ ? note_ : kept_[buffer].note).fresh = false;
}

GradientState GradientSlots::Node::collect() {
  if (move_in_assigned()) note_.fresh = true;
  const auto now = state();
  if (now == GradientState::absent) note_.fresh = false;  // the user dropped the gradient
  return now;
}

GradientState GradientSlots::Node::move_to(std::size_t buffer, const at::Tensor& to) {
  const bool is_current = buffer == buffer_;
  if (is_current) (void)collect();
  const auto before = state(buffer);
  auto& note = is_current ? note_ : kept_[buffer].note;
  if (before == GradientState::absent) {
    note.fresh = false;
    return before;
  }
  if (to.is_cuda()) {
    shared_->gather.add(index_, to, slots_[buffer], /*adds=*/false);  // keeps the slot's memory
  } else {
    note.non_finite = copy_noting_non_finite(to, slots_[buffer]);
  }
  if (is_current) {
    entry_.parameter.mutable_grad().reset();
  } else {
    kept_[buffer].bound = false;
  }
  slots_[buffer].reset();
  return before;
}

bool GradientSlots::Node::move_in_assigned() {
  const auto& gradient = entry_.parameter.grad();
  if (!gradient.defined() || is_slot(gradient)) return false;
  const at::NoGradGuard off;
  note_.non_finite = write(gradient, /*adds=*/false);
  bind();
  return true;
}

bool GradientSlots::Node::is_in_place() const {
  return has_same_memory() && entry_.parameter.scalar_type() == dtype_ &&
         autograd::impl::try_get_grad_accumulator(entry_.parameter).get() == this;
}

bool GradientSlots::Node::is_slot(const at::Tensor& gradient) const {
  return slot().defined() && gradient.layout() == at::kStrided &&
         gradient.const_data_ptr() == slot().const_data_ptr() && gradient.sizes() == slot().sizes();
}

bool GradientSlots::Node::has_same_memory() const {
  return entry_.parameter.has_storage() &&
         entry_.parameter.storage().unsafeGetStorageImpl() == storage_ &&
         entry_.parameter.storage_offset() == offset_;
}

void GradientSlots::Node::accept(const at::Tensor& gradient) {
  if (auto* listener = shared_->listener; listener != nullptr) {
    listener->on_backward();
    listener->before_gradient(index_, state());
  }
  const bool adds = entry_.parameter.grad().defined();
  (void)move_in_assigned();
  note_.non_finite = write(gradient, adds);
  if (!adds) bind();
  note_.fresh = true;
}

bool GradientSlots::Node::hold(const at::Tensor& gradient) {
  const auto& parameter = entry_.parameter;
  // A tensor that the program, or another node, still refers to is copied.
  if (is_sole_owner(gradient) && gradient.scalar_type() == dtype_ &&
      gradient.sizes() == parameter.sizes() && gradient.strides() == parameter.strides()) {
    slots_[buffer_] = gradient.variable_data();
    return true;
  }
  slots_[buffer_] = at::empty_strided(parameter.sizes(), parameter.strides(), parameter.options());
  return false;
}

bool GradientSlots::Node::write(const at::Tensor& gradient, bool adds) {
  if (is_loose_ && !adds && hold(gradient)) return false;
  if (slot().is_cuda()) {
    shared_->gather.add(index_, slot(), like(slot(), gradient), adds);
    shared_->flush_at_end();
    return false;
  }
  return adds ? add_noting_non_finite(slot(), gradient) : copy_noting_non_finite(slot(), gradient);
}

void GradientSlots::Node::use_current_stream() {
  const auto device = entry_.parameter.device();
  if (!device.is_cuda()) return;
  if (stream() == c10::impl::VirtualGuardImpl(device.type()).getStream(device)) return;
  input_metadata_.clear();
  add_input_metadata(entry_.parameter);
}

// As LibTorch's accumulator does after a gradient.
void GradientSlots::Node::call_user_hooks() {
  auto& hook = autograd::impl::post_acc_grad_hooks(entry_.parameter);
  if (!hook) return;
  const auto* sentinel = dynamic_cast<const Sentinel*>(hook.get());
  if (sentinel != nullptr && !sentinel->has_user_hook()) return;
  shared_->gather.flush();  // the hook may read the gradient
  if (sentinel != nullptr) {
    sentinel->call_user_hook(entry_.parameter);
  } else {
    (*hook)(entry_.parameter);
  }
}

void GradientSlots::Node::refuse_moved_parameter() const {
  throw UsageError(fmt::format(
      "parameter {} is no longer in registered memory: to(), set_data and torch::load move it. "
      "Call them before the Ddp is made, or call adopt() on all ranks afterwards",
      entry_.name));
}

// A slot is plain memory, which is not part of an autograd graph.
void GradientSlots::Node::expect_no_graph(const at::Tensor& gradient) const {
  if (!at::GradMode::is_enabled() || !gradient.requires_grad()) return;
  throw UsageError(fmt::format(
      "backward() with create_graph is unsupported: the gradient of parameter {} is in registered "
      "memory, which is not part of an autograd graph. Compute gradients that a loss depends on "
      "with torch::autograd::grad()",
      entry_.name));
}

}  // namespace lockstep
