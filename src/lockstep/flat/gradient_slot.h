// How gradients reach flat buffers. Each parameter has an autograd node in place of LibTorch's
// gradient accumulator. If `.grad` is undefined, the node copies the gradient into the parameter's
// slot and makes `.grad` a view of the slot; otherwise it adds the gradient to the slot. So no
// gradient is zeroed or copied twice, whatever the user does with `.grad` between steps. The same
// pass finds non-finite values. On a GPU, gradients that have arrived are written together, with
// one launch, at the latest when backward() ends (flush).
//
// Words: a *slot* is the memory for one parameter's gradient. With several gradient buffers a
// parameter has one slot per buffer; backward() writes to the slots of the *current* buffer. A
// gradient is *bound* when `.grad` is the slot. A *loose* slot has no memory until a gradient
// arrives, and keeps that gradient until move_to() copies it elsewhere (Shard::gradients).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// What `.grad` of a parameter is.
enum class GradientState {
  absent,    // undefined
  stale,     // bound; no gradient arrived since mark_stale(): an earlier step's average
  fresh,     // bound; a gradient arrived since mark_stale()
  assigned,  // a tensor in other memory, which the user assigned
};

/// Is notified of gradients during backward(), on the thread that runs it. If one of these
/// functions throws, backward() throws the same exception.
class GradientListener {
 public:
  GradientListener() = default;
  GradientListener(const GradientListener&) = delete;
  GradientListener& operator=(const GradientListener&) = delete;
  virtual ~GradientListener() = default;

  /// Called before each of the functions below: a backward() is running. In the first call of a
  /// backward() the listener may still change the current buffer.
  virtual void on_backward() {}
  /// A gradient is about to be written or added to slot `index`, which is in `state`. If this
  /// throws, the slot does not change.
  virtual void before_gradient(int index, GradientState state) = 0;
  /// The gradient of parameter `index` is in its slot, which is fresh.
  virtual void after_gradient(int index) = 0;
  /// Autograd reached parameter `index` with an undefined gradient; the slot has not changed.
  virtual void after_undefined_gradient(int index) = 0;
};

/// The gradient slots of a model's parameters.
class GradientSlots {
 public:
  struct Entry {
    std::string name;
    at::Tensor parameter;
    std::vector<at::Tensor> gradients;  // the slot in each buffer, with the parameter's shape;
                                        // undefined: a loose slot
  };

  /// Installs a node for each parameter; buffer 0 is current. A gradient that a parameter has moves
  /// into its slot. While this object lives, all gradients go to the slots, also those of graphs
  /// built earlier. Graphs that outlive it still write to the slots.
  /// If a parameter moves to other memory (is_in_place), backward() throws UsageError that names
  /// it when its next gradient arrives.
  explicit GradientSlots(std::vector<Entry> entries);
  GradientSlots(const GradientSlots&) = delete;
  GradientSlots& operator=(const GradientSlots&) = delete;
  ~GradientSlots();

  /// Whether a living GradientSlots object has a slot for `parameter`.
  [[nodiscard]] static bool has_slot(const at::Tensor& parameter);

  /// Calls `report` once after this object has been destroyed: with the name of the first parameter
  /// that gets a gradient and has no other slot by then.
  void when_gone(std::function<void(const std::string& name)> report);

  /// Sets the only listener; null removes it. The listener must live until it is removed.
  void listen(GradientListener* listener) noexcept;

  /// Makes `buffer` current. Each `.grad` becomes what it was when that buffer was last current:
  /// the slot there, or undefined. An assigned gradient moves into its old slot first.
  void use_buffer(int buffer) const;
  /// Makes `.grad` undefined wherever it is a slot. Gradients that the user has assigned stay.
  void discard() const noexcept;
  /// Discards the gradients in `buffer`, which is not the current one.
  void drop(int buffer) const noexcept;
  /// Makes every fresh gradient in `buffer` stale: it has been reduced, or will not be.
  void mark_stale(int buffer) const noexcept;

  /// The state of parameter `index` in the current buffer.
  [[nodiscard]] GradientState state(int index) const;
  /// Its state if `buffer` were current.
  [[nodiscard]] GradientState state(int index, int buffer) const;
  /// Whether any parameter is in `state` in `buffer`.
  [[nodiscard]] bool any(GradientState state, int buffer) const;
  /// Whether `.grad` of parameter `index` is its slot: stale or fresh.
  [[nodiscard]] bool is_bound(int index) const;
  /// Whether the result of the last write or addition to slot `index` of `buffer` has a non-finite
  /// value. Of a loose slot this is known after move_to().
  [[nodiscard]] bool non_finite(int index, int buffer) const;

  /// By parameter, the same for slots on a GPU: a write since the last mark_stale() had a
  /// non-finite value. Waits for the device.
  [[nodiscard]] std::vector<bool> read_non_finite() const;

  /// Enqueues the writes of all gradients that have arrived in slots on a GPU; the current stream
  /// then sees them. Call it before their memory is used during a backward(), and after collect()
  /// and move_in_assigned().
  void flush() const;
  /// Nodes of slots on a GPU run on the stream that was current when the slots were made; after a
  /// backward() from another stream, on that one. Before the first one, call this with that stream
  /// current: a CUDA graph cannot be captured otherwise.
  void use_current_stream() const;

  /// Prepares slot `index` for a reduction: an assigned gradient moves into the slot and becomes
  /// fresh. Returns the state after that: absent, stale or fresh.
  GradientState collect(int index) const;
  /// Copies the gradient in the loose slot `index` of `buffer` to `to`, which has its form, and
  /// makes `.grad` undefined there. An assigned gradient counts as fresh. Returns the state before;
  /// if it was absent, `to` does not change.
  GradientState move_to(int index, int buffer, const at::Tensor& to) const;
  /// Prepares slot `index` for an optimizer step: an assigned gradient moves into the slot, which
  /// stays as fresh or stale as before. Returns whether there was one.
  [[nodiscard]] bool move_in_assigned(int index) const;
  /// Makes `.grad` the slot, whatever it was.
  void bind(int index) const;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] const Entry& entry(int index) const;
  /// Whether parameter `index` has not moved and its gradients still arrive in its slot; to(),
  /// set_data and torch::load end both.
  [[nodiscard]] bool is_in_place(int index) const;

 private:
  struct Shared;
  class Node;
  class Sentinel;
  class AfterEnd;

  // Shared with the nodes, because graphs may outlive this object.
  std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<Node>> nodes_;
};

}  // namespace lockstep
