// The seam between a model and what is wrapped around its blocks. A model calls unit(block)(x)
// where it would call block(x). What that does is chosen outside, block by block, once the model is
// made: nothing (then it is block->forward(x) and the test of one pointer), recompute, and whatever
// else offers a UnitWrapper.
//
//   struct BlockImpl : torch::nn::Module, lockstep::Unit { … };
//   for (auto& block : blocks) x = unit(block)(x);              // in the model's forward
//   recompute_blocks(*net, {.every = 2});                       // outside
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

/// One call of a block, as a wrapper sees it: `forward` runs what is inside.
struct UnitCall {
  std::shared_ptr<torch::nn::Module> block;
  BlockForward forward;
  std::vector<at::Tensor> inputs;
};

/// Something around blocks. One object may serve many; it is called from forward() and must not
/// change what the block computes.
class UnitWrapper {
 public:
  UnitWrapper() = default;
  UnitWrapper(const UnitWrapper&) = delete;
  UnitWrapper& operator=(const UnitWrapper&) = delete;
  virtual ~UnitWrapper() = default;

  [[nodiscard]] virtual std::vector<at::Tensor> run(UnitCall call) = 0;
  /// One word for messages: "recompute".
  [[nodiscard]] virtual std::string name() const = 0;
};

/// What a block's class derives from beside torch::nn::Module.
class Unit {
 public:
  /// Puts `wrapper` around the block and around the wrappers that it has.
  void wrap(std::shared_ptr<UnitWrapper> wrapper);
  /// Takes all wrappers away.
  void unwrap() noexcept { wrappers_.reset(); }
  /// From the outermost to the innermost.
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

  // None where nothing was chosen. Shared: clones of a block are wrapped alike.
  std::shared_ptr<const std::vector<std::shared_ptr<UnitWrapper>>> wrappers_;
};

/// What unit() returns; lives for one call.
template <typename Block>
class UnitCallable {
 public:
  explicit UnitCallable(const Block& block) noexcept : block_(block) {}

  /// forward() returns one tensor. Tensors among `arguments` are the block's inputs; other
  /// arguments are kept as they are for the second forward.
  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    const auto& own = block_.ptr();
    if (!own->is_wrapped()) [[likely]] {
      return own->forward(std::forward<Arguments>(arguments)...);
    }
    std::vector<at::Tensor> inputs;
    const auto take = [&]<typename T>(const T& argument) {
      if constexpr (std::is_same_v<T, at::Tensor>) inputs.push_back(argument);
    };
    (take(arguments), ...);
    BlockForward forward =
        [own, ... kept = without_tensor(arguments)](const std::vector<at::Tensor>& given) mutable {
          std::size_t next = 0;
          const auto put = [&]<typename T>(T& value) -> decltype(auto) {
            if constexpr (std::is_same_v<T, TensorPlace>) {
              return given[next++];
            } else {
              return (value);
            }
          };
          // Braces: arguments are taken from left to right.
          std::tuple<decltype(put(kept))...> all{put(kept)...};
          return std::vector<at::Tensor>{
              std::apply([&](auto&... each) { return own->forward(each...); }, all)};
        };
    return own->run({own, std::move(forward), std::move(inputs)}).front();
  }

 private:
  struct TensorPlace {};

  template <typename T>
  static auto without_tensor(const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      return TensorPlace{};
    } else {
      return argument;
    }
  }

  const Block& block_;
};

/// `block` is a module holder (TORCH_MODULE) whose class derives from Unit.
template <ModuleHolder Block>
[[nodiscard]] UnitCallable<Block> unit(const Block& block) noexcept {
  static_assert(std::is_base_of_v<Unit, typename Block::ContainedType>,
                "let the block's class derive from lockstep::Unit beside torch::nn::Module");
  return UnitCallable<Block>(block);
}

struct RecomputeOptions {
  int every = 1;  // block 0, every, 2 × every, … of the model's units
};

/// Chooses recompute for the units of `model`, in the order in which they are registered. A unit
/// inside another is a unit of its own. Returns how many were chosen. Throws UsageError when the
/// model has no unit, or one has it already.
int recompute_blocks(torch::nn::Module& model, const RecomputeOptions& options = {});

}  // namespace lockstep
