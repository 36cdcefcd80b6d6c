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

/// Hears of gradients during backward, on the thread that runs it.
class GradientListener {
 public:
  GradientListener() = default;
  GradientListener(const GradientListener&) = delete;
  GradientListener& operator=(const GradientListener&) = delete;
  virtual ~GradientListener() = default;

  /// A gradient is about to be written to slot `index`, or added to it where `.grad` is defined.
  /// What these throw, backward() throws, and the slot is as it was. The first of a backward may
  /// still change which buffer is in use.
  virtual void gradient_comes(int index) = 0;
  /// Parameter `index` has its gradient in place; without one when autograd came by with nothing
  /// (`defined` is false).
  virtual void gradient_came(int index, bool defined) = 0;
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

  /// True when `.grad` of parameter `index` is its slot.
  [[nodiscard]] bool is_live(int index) const;
  /// Or would be, were that buffer in use.
  [[nodiscard]] bool is_live(int index, int buffer) const;
  /// `.grad` becomes the slot, whatever it was.
  void make_live(int index) const;
  /// A gradient that lies elsewhere (assigned by hand) moves into its slot. True when there was
  /// one.
  [[nodiscard]] bool take_in(int index) const;
  /// Whether what came last into slot `index`, or was added to it since, had a non-finite value.
  [[nodiscard]] bool non_finite(int index) const;

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
