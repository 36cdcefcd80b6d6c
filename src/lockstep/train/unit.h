// The interface between a model and wrappers around its blocks. A model calls unit(block)(x)
// instead of block(x). After the model is made, the program chooses a wrapper for each block: none
// (then the call is block->forward(x) and one pointer test), recompute, or any other UnitWrapper.
//
//   for (auto& block : blocks) x = unit(block)(x);   // in the model's forward
//   recompute_blocks(*net, {.every = 2});            // in the program
//
// A block derives from torch::nn::Module and from lockstep::Unit.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/train/recompute.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// One call of a block: `forward` runs the block and the wrappers inside this one.
struct UnitCall {
  std::shared_ptr<torch::nn::Module> block;
  BlockForward forward;
  std::vector<at::Tensor> inputs;
};

/// Runs around the forward of blocks. One object may serve many blocks. It is called from forward()
/// and must not change the block's result.
class UnitWrapper {
 public:
  UnitWrapper() = default;
  UnitWrapper(const UnitWrapper&) = delete;
  UnitWrapper& operator=(const UnitWrapper&) = delete;
  virtual ~UnitWrapper() = default;

  [[nodiscard]] virtual std::vector<at::Tensor> run(UnitCall call) = 0;
  /// A word for messages: "recompute".
  [[nodiscard]] virtual std::string name() const = 0;
};

/// The base, beside torch::nn::Module, of a block's class.
class Unit {
 public:
  /// Puts `wrapper` around the block and its present wrappers.
  void wrap(std::shared_ptr<UnitWrapper> wrapper);
  /// Removes all wrappers.
  void unwrap() noexcept { wrappers_.reset(); }
  /// The names of the wrappers, from the outermost to the innermost.
  [[nodiscard]] std::vector<std::string> wrapper_names() const;

 protected:
  Unit() = default;
  ~Unit() = default;
  Unit(const Unit&) = default;
  Unit& operator=(const Unit&) = default;

 private:
  template <typename Block>
  friend class UnitCallable;

  [[nodiscard]] bool is_wrapped() const noexcept { return wrappers_ != nullptr; }
  [[nodiscard]] std::vector<at::Tensor> run(UnitCall call) const;

  // Null without wrappers. Shared, so that clones of a block have the same wrappers.
  std::shared_ptr<const std::vector<std::shared_ptr<UnitWrapper>>> wrappers_;
};

/// The result of unit(); lives for one call.
template <typename Block>
class UnitCallable {
 public:
  explicit UnitCallable(const Block& block) noexcept : block_(block) {}

  /// Calls forward(), which returns one tensor. Tensors among `arguments` are the block's inputs;
  /// other arguments are copied for the second forward.
  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    const auto& own = block_.ptr();
    if (!own->is_wrapped()) [[likely]] {
      return own->forward(std::forward<Arguments>(arguments)...);
    }
    std::vector<at::Tensor> inputs;
    const auto add_input = [&]<typename T>(const T& argument) {
      if constexpr (std::is_same_v<T, at::Tensor>) inputs.push_back(argument);
    };
    (add_input(arguments), ...);
    BlockForward forward =
        [own, ... kept = without_tensor(arguments)](const std::vector<at::Tensor>& given) mutable {
          std::size_t next = 0;
          const auto put = [&]<typename T>(T& value) -> decltype(auto) {
            if constexpr (std::is_same_v<T, TensorPlaceholder>) {
              return given[next++];
            } else {
              return (value);
            }
          };
          // Braces evaluate the arguments from left to right.
          std::tuple<decltype(put(kept))...> all{put(kept)...};
          return std::vector<at::Tensor>{
              std::apply([&](auto&... each) { return own->forward(each...); }, all)};
        };
    return own->run({own, std::move(forward), std::move(inputs)}).front();
  }

 private:
  struct TensorPlaceholder {};

  template <typename T>
  static auto without_tensor(const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return TensorPlaceholder{};
    } else {
      return argument;
    }
  }

  const Block& block_;
};

/// Returns a callable for `block`, a module holder (TORCH_MODULE) whose class derives from Unit.
template <ModuleHolder Block>
[[nodiscard]] UnitCallable<Block> unit(const Block& block) noexcept {
  static_assert(std::is_base_of_v<Unit, typename Block::ContainedType>,
                "derive the block's class from torch::nn::Module and lockstep::Unit");
  return UnitCallable<Block>(block);
}

struct RecomputeOptions {
  int every = 1;  // recompute units 0, every, 2 × every, … of the model
};

/// Turns on activation checkpointing for units of `model`, counted in the order of registration. A
/// unit inside another one counts separately.
/// Returns the number of recomputed units.
/// Throws UsageError when the model has no unit, or when a unit is already recomputed.
int recompute_blocks(torch::nn::Module& model, const RecomputeOptions& options = {});

}  // namespace lockstep
