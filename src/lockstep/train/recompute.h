// Activation checkpointing: a block's forward keeps its inputs alone, and backward runs it again to
// have what is between. Costs one more forward of the block; memory falls to the inputs of all
// blocks and the inside of one.
//
//   x = recompute(block, x);                            // instead of block(x)
//
// Gradients have the same bits as without it. The second forward sees what the first saw: the state
// of the random generators (dropout), of autocast, and of the block's buffers; afterwards all of
// them are as if it had not been (BatchNorm counts a batch once). The block's parameters are inputs
// of one node of the graph, which returns their gradients: hooks on parameters, and Ddp, notice
// nothing. Nested uses, several outputs and double backward work. One exception to the same bits:
// a parameter that one backward meets more than twice, in several runs of blocks, has its parts
// added in another order.
//
// A block may not change its inputs in place, and every tensor that needs a gradient must be an
// input or a parameter; both are seen and named when they happen.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What runs twice: its inputs in, its outputs out. Called a second time from backward(), so what
/// it refers to must live until then, unchanged.
using BlockForward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// What a block has besides its inputs.
struct BlockState {
  std::vector<at::Tensor> parameters = {};
  std::vector<at::Tensor> buffers = {};
};

/// Runs `forward` on `inputs`, to be run again in backward. Without a gradient to compute
/// (NoGradGuard, nothing requires one) it is run as it is. Throws UsageError when it changes an
/// input in place, and from backward() when a tensor needs a gradient that is neither an input nor
/// in `state`.
[[nodiscard]] std::vector<at::Tensor> recompute(const BlockForward& forward,
                                                const BlockState& state,
                                                std::vector<at::Tensor> inputs);

/// A module's holder: something with parameters(), buffers() and forward(tensors…) behind its
/// arrow.
template <typename Block>
concept ModuleHolder = requires(const Block& block) {
  { block->parameters(true) } -> std::convertible_to<std::vector<at::Tensor>>;
  { block->buffers(true) } -> std::convertible_to<std::vector<at::Tensor>>;
};

/// The same for `block->forward(inputs…)`, which returns one tensor. Keeps the block alive until
/// backward is done.
template <ModuleHolder Block, std::convertible_to<at::Tensor>... Inputs>
[[nodiscard]] at::Tensor recompute(const Block& block, const Inputs&... inputs) {
  const auto forward = [block](const std::vector<at::Tensor>& given) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      Block own = block;  // a holder: the module itself is not copied
      return std::vector<at::Tensor>{own->forward(given[I]...)};
    }
    (std::index_sequence_for<Inputs...>());
  };
  return recompute(forward, {block->parameters(true), block->buffers(true)},
                   {at::Tensor(inputs)...})
      .front();
}

}  // namespace lockstep
