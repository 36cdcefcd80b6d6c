// The objects that a checkpoint can hold: any type with tensors, a JSON value, or both. It needs
// these members and no base class:
//
//   struct Mine {
//     std::vector<std::pair<std::string, at::Tensor>> named_tensors();  // views of the live state
//     std::string state_json() const;
//     void load_state_json(std::string_view json);
//   };
//
// Loading calls load_state_json() first, so that the object can create the tensors that
// named_tensors() then returns. The saved bytes are copied into these tensors in place; no memory
// moves. An object whose named_tensors() are copies of its state has one more member,
// load_tensors(const NamedTensors&), which is called after the bytes have been copied. LibTorch's
// modules, optimizers and generators do not have these members; this file has adapters for them.
//
// These tensors are equal on all ranks, and each of them is saved once. An object may also have:
//
// sharded_tensors()  Tensors of which every rank holds a part, such as the state of an optimizer
//                    whose elements are divided among the ranks. Each rank saves and loads its
//                    part. The file is that of whole tensors: any number of ranks, each with its
//                    own parts or with whole tensors, can resume from it.
// rank_tensors()     Tensors that differ between ranks, such as the error feedback of compressed
//                    gradients, with the same names and shapes on every rank and the type of
//                    named_tensors(). Every rank saves its own and gets them back, byte for byte.
//                    Only their sum over the ranks may matter: when the run resumes with another
//                    number of ranks, rank r of n gets the sum of those of the saved ranks r,
//                    r + n, r + 2n and so on, or zeros, so that the sum over all ranks is
//                    preserved. Such an object needs a JSON value.
//
// The functions that return tensors are called on all ranks, for the same objects in the same
// order, so they may be collective.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/sharded_tensor.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

template <typename T>
concept HasNamedTensors = requires(T& thing) {
  { thing.named_tensors() } -> std::convertible_to<NamedTensors>;
};

template <typename T>
concept HasStateJson = requires(T& thing, const T& constant, std::string_view json) {
  { constant.state_json() } -> std::convertible_to<std::string>;
  thing.load_state_json(json);
};

template <typename T>
concept HasRankTensors = requires(T& thing) {
  { thing.rank_tensors() } -> std::convertible_to<NamedTensors>;
};

template <typename T>
concept HasShardedTensors = requires(T& thing) {
  { thing.sharded_tensors() } -> std::convertible_to<ShardedTensors>;
};

template <typename T>
concept LoadsTensors = requires(T& thing, const NamedTensors& loaded) {
  thing.load_tensors(loaded);
};

/// A tracked object of any type. Borrows the object.
class Tracked {
 public:
  Tracked() = default;
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;
  virtual ~Tracked() = default;

  /// A description for messages: "a module".
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;
  /// The tensors to save, or to load into.
  [[nodiscard]] virtual NamedTensors named_tensors() = 0;
  /// How many of named_tensors(), from the first on, are equal on all ranks, so that any rank can
  /// save them. Of the others, the values of rank 0 are saved.
  [[nodiscard]] virtual std::size_t num_equal(const NamedTensors& named) { return named.size(); }
  /// The JSON value to save. Empty for an object that has only tensors.
  [[nodiscard]] virtual std::optional<std::string> state_json() const = 0;
  /// Loads a value of state_json(). Throws UsageError if it is invalid for this object.
  virtual void load_state_json(std::string_view json) = 0;
  /// The tensors of which every rank holds a part, beside named_tensors().
  [[nodiscard]] virtual ShardedTensors sharded_tensors() { return {}; }
  /// The tensors that differ between ranks, beside named_tensors().
  [[nodiscard]] virtual NamedTensors rank_tensors() { return {}; }
  /// Called with the result of named_tensors() after the saved bytes have been copied into it. For
  /// an object whose named_tensors() are copies of its state.
  virtual void load_tensors(const NamedTensors& /*loaded*/) {}
  /// True if each rank has its own state that no other rank can use: named_tensors() are saved per
  /// rank.
  [[nodiscard]] virtual bool is_per_rank() const noexcept { return false; }
  /// For is_per_rank(): sets a new state from `seed`, when the run resumes at another world size.
  virtual void derive(std::uint64_t /*seed*/) {}
};

/// Parameters and buffers, with the names of Python's state_dict.
[[nodiscard]] std::unique_ptr<Tracked> track_module(torch::nn::Module& module);
/// SGD, Adam and AdamW: options of every group, steps, momenta. Throws UsageError for other
/// optimizers.
[[nodiscard]] std::unique_ptr<Tracked> track_optimizer(torch::optim::Optimizer& optimizer);
/// The state of a random generator, saved per rank.
[[nodiscard]] std::unique_ptr<Tracked> track_generator(at::Generator generator);

template <typename T>
class TrackedThing final : public Tracked {
 public:
  explicit TrackedThing(T& thing) noexcept : thing_(thing) {}

  std::string_view kind() const noexcept override {
    if (HasNamedTensors<T>) return "an object with named_tensors()";
    return HasShardedTensors<T> ? "an object with sharded_tensors()"
                                : "an object with state_json()";
  }
  NamedTensors named_tensors() override {
    if constexpr (HasNamedTensors<T>) return thing_.named_tensors();
    return {};
  }
  ShardedTensors sharded_tensors() override {
    if constexpr (HasShardedTensors<T>) return thing_.sharded_tensors();
    return {};
  }
  NamedTensors rank_tensors() override {
    if constexpr (HasRankTensors<T>) return thing_.rank_tensors();
    return {};
  }
  std::optional<std::string> state_json() const override {
    if constexpr (HasStateJson<T>) return thing_.state_json();
    return std::nullopt;
  }
  void load_state_json([[maybe_unused]] std::string_view json) override {
    if constexpr (HasStateJson<T>) thing_.load_state_json(json);
  }
  void load_tensors([[maybe_unused]] const NamedTensors& loaded) override {
    if constexpr (LoadsTensors<T>) thing_.load_tensors(loaded);
  }

 private:
  T& thing_;
};

template <typename T>
concept IsModule = std::derived_from<T, torch::nn::Module>;
/// Module holders (torch::nn::Linear) and shared_ptr to a module.
template <typename T>
concept HoldsModule = requires(T& holder) {
  { *holder } -> std::convertible_to<torch::nn::Module&>;
};

/// The adapter for `thing`, by its type.
template <typename T>
[[nodiscard]] std::unique_ptr<Tracked> tracked(T& thing) {
  if constexpr (IsModule<T>) {
    return track_module(thing);
  } else if constexpr (std::derived_from<T, torch::optim::Optimizer>) {
    return track_optimizer(thing);
  } else if constexpr (std::derived_from<T, at::Generator>) {
    return track_generator(thing);
  } else if constexpr (HasNamedTensors<T> || HasShardedTensors<T> || HasStateJson<T>) {
    static_assert(HasStateJson<T> || !HasRankTensors<T>,
                  "a tracked object with rank_tensors() needs state_json() and load_state_json()");
    return std::make_unique<TrackedThing<T>>(thing);
  } else {
    static_assert(HoldsModule<T>,
                  "a tracked object must be a module, an optimizer or a generator of LibTorch, or "
                  "have named_tensors(), sharded_tensors(), or state_json() and load_state_json(): "
                  "see lockstep/checkpoint/tracked.h");
    return track_module(*thing);
  }
}

}  // namespace lockstep
