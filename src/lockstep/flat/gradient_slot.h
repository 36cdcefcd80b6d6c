// How gradients reach flat memory: in place of LibTorch's own accumulator, each parameter has a
// node that copies the first gradient after `.grad` was undefined straight into its slot, adds
// later ones, and makes `.grad` a view of the slot. No zeroing, no second copy, whatever the user
// does with `.grad` between steps; non-finite values are noted on the way.
//
// There may be several buffers of gradients, so a slot in each; one of them is in use.
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
  stale,     // its slot, and no gradient came since mark_stale(): the last average, or an older one
  fresh,     // its slot, and a gradient came since
  assigned,  // a tensor that lies elsewhere: the user assigned it
};

/// Hears of gradients during backward, on the thread that runs it. What its functions throw,
/// backward() throws.
class GradientListener {
 public:
  GradientListener() = default;
  GradientListener(const GradientListener&) = delete;
  GradientListener& operator=(const GradientListener&) = delete;
  virtual ~GradientListener() = default;

  /// Comes before each of the functions below: a backward runs. The first call of a backward may
  /// still change which buffer is in use.
  virtual void attend() {}
  /// A gradient is about to be written to slot `index`, or added to it; `state` is the slot's
  /// before that. If this throws, the slot stays as it was.
  virtual void gradient_comes(int index, GradientState state) = 0;
  /// Parameter `index` has its gradient in place: its slot is fresh.
  virtual void gradient_came(int index) = 0;
  /// Autograd came to parameter `index` without a gradient: its slot is as it was.
  virtual void no_gradient_came(int index) = 0;
};

/// The slots of a model's parameters.
class GradientSlots {
 public:
  struct Place {
    std::string name;
    at::Tensor parameter;
    std::vector<at::Tensor> gradients;  // its slot in each buffer, shaped as the parameter
  };

  /// Puts a node in place for each parameter; buffer 0 is in use. From now on, while this lives,
  /// gradients go to the slots, also those of graphs that are older; graphs that outlive it still
  /// end there. Gradients that parameters have are taken along. A parameter that leaves
  /// (is_in_place) makes backward() throw UsageError that names it, as soon as it gets a gradient.
  explicit GradientSlots(std::vector<Place> places);
  GradientSlots(const GradientSlots&) = delete;
  GradientSlots& operator=(const GradientSlots&) = delete;
  ~GradientSlots();

  /// Whether `parameter` has a slot somewhere.
  [[nodiscard]] static bool has_slot(const at::Tensor& parameter);

  /// `report` is called, once, with the name of the first parameter that gets a gradient after the
  /// slots are gone, unless it has other slots by then.
  void when_gone(std::function<void(const std::string& name)> report);

  /// At most one; null for none. It outlives its registration.
  void listen(GradientListener* listener) noexcept;

  /// From now on slots are those of `buffer`, and each `.grad` is what it was when that buffer was
  /// used last: its slot there, or undefined. What was assigned by hand goes to its slot first.
  void use_buffer(int buffer) const;
  /// Forgets what came into `buffer`, which is not in use.
  void drop(int buffer) const noexcept;
  /// What is fresh in `buffer` is stale from now on: it was reduced, or is not to be.
  void mark_stale(int buffer) const noexcept;

  /// The state of parameter `index`.
  [[nodiscard]] GradientState state(int index) const;
  /// What it would be if `buffer` were in use.
  [[nodiscard]] GradientState state(int index, int buffer) const;
  /// Whether any parameter is in `state`, in `buffer`.
  [[nodiscard]] bool any(GradientState state, int buffer) const;
  /// Whether `.grad` of parameter `index` is its slot: stale or fresh.
  [[nodiscard]] bool is_live(int index) const;
  /// Whether what came last into slot `index`, or was added to it since, had a non-finite value.
  [[nodiscard]] bool non_finite(int index) const;

  /// What a reduction reads: an assigned gradient moves into its slot and is fresh then. Returns
  /// the state after that: absent, stale or fresh.
  GradientState collect(int index) const;
  /// What a step reads: an assigned gradient moves into its slot, which is as fresh as before. True
  /// when there was one.
  [[nodiscard]] bool take_in(int index) const;
  /// `.grad` becomes the slot, whatever it was.
  void make_live(int index) const;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(nodes_.size()); }
  [[nodiscard]] const Place& place(int index) const;
  /// Whether autograd still ends in the slot of parameter `index`, and the parameter lies where it
  /// was: to(), set_data, torch::load and the like end either.
  [[nodiscard]] bool is_in_place(int index) const;

 private:
  struct Shared;
  class Node;
  class Sentinel;
  class AfterEnd;

  // Shared with the nodes: graphs may outlive this.
  std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<Node>> nodes_;
};

}  // namespace lockstep
