// What a checkpoint can hold: anything that offers its tensors by name, a JSON value, or both, with
// these members and no base class:
//
//   std::vector<std::pair<std::string, at::Tensor>> named_tensors();   // they alias the live state
//   std::string state_json() const;
//   void load_state_json(std::string_view json);
//
// Loading hands over the JSON first, so that a thing can make the tensors it then offers; the saved
// bytes are copied into those, in place, so that no memory moves. Modules and optimizers of
// LibTorch and its generators have no such members; for them there are adapters.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// A tracked thing whatever its type. Borrows the thing.
class Tracked {
 public:
  Tracked() = default;
  Tracked(const Tracked&) = delete;
  Tracked& operator=(const Tracked&) = delete;
  virtual ~Tracked() = default;

  /// For messages: "a module".
  [[nodiscard]] virtual std::string_view kind() const noexcept = 0;
  [[nodiscard]] virtual NamedTensors named_tensors() = 0;
  /// Nothing for a thing that has tensors alone.
  [[nodiscard]] virtual std::optional<std::string> state_json() const = 0;
  virtual void load_state_json(std::string_view json) = 0;
  /// Called with what named_tensors() gave, once the saved bytes are in them: for a thing that
  /// hands out copies.
  virtual void load_tensors(const NamedTensors& /*loaded*/) {}
  /// True for what each rank has for itself and no other rank can use.
  [[nodiscard]] virtual bool is_per_rank() const noexcept { return false; }
  /// For what is_per_rank(): a fresh state for a rank of a world of another size.
  virtual void derive(std::uint64_t /*seed*/) {}
};

/// Parameters and buffers, by the names that state_dict gives them in Python.
[[nodiscard]] std::unique_ptr<Tracked> track_module(torch::nn::Module& module);
/// SGD, Adam and AdamW: options of every group, steps, momenta. Throws UsageError for any other.
[[nodiscard]] std::unique_ptr<Tracked> track_optimizer(torch::optim::Optimizer& optimizer);
/// The state of a random generator, which each rank has for itself.
[[nodiscard]] std::unique_ptr<Tracked> track_generator(at::Generator generator);

template <typename T>
class TrackedThing final : public Tracked {
 public:
  explicit TrackedThing(T& thing) noexcept : thing_(thing) {}

  std::string_view kind() const noexcept override {
    return HasNamedTensors<T> ? "an object with named_tensors()" : "an object with state_json()";
  }
  NamedTensors named_tensors() override {
    if constexpr (HasNamedTensors<T>) return thing_.named_tensors();
    return {};
  }
  std::optional<std::string> state_json() const override {
    if constexpr (HasStateJson<T>) return thing_.state_json();
    return std::nullopt;
  }
  void load_state_json([[maybe_unused]] std::string_view json) override {
    if constexpr (HasStateJson<T>) thing_.load_state_json(json);
  }

 private:
  T& thing_;
};

template <typename T>
concept IsModule = std::derived_from<T, torch::nn::Module>;
/// torch::nn::Linear and the like, and shared_ptr of a module.
template <typename T>
concept HoldsModule = requires(T& holder) {
  { *holder } -> std::convertible_to<torch::nn::Module&>;
};

template <typename T>
[[nodiscard]] std::unique_ptr<Tracked> tracked(T& thing) {
  if constexpr (IsModule<T>) {
    return track_module(thing);
  } else if constexpr (std::derived_from<T, torch::optim::Optimizer>) {
    return track_optimizer(thing);
  } else if constexpr (std::derived_from<T, at::Generator>) {
    return track_generator(thing);
  } else if constexpr (HasNamedTensors<T> || HasStateJson<T>) {
    return std::make_unique<TrackedThing<T>>(thing);
  } else {
    static_assert(HoldsModule<T>,
                  "a tracked thing is a module, an optimizer or a generator of LibTorch, or has "
                  "named_tensors(), or state_json() and load_state_json(): lockstep/checkpoint/"
                  "tracked.h");
    return track_module(*thing);
  }
}

}  // namespace lockstep
