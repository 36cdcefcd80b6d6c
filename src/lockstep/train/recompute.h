// Activation checkpointing, as torch.utils.checkpoint: the forward of a block keeps only its
// inputs, and backward runs the block again to recompute its activations. It costs one more forward
// of the block. Activation memory falls to the inputs of all blocks and the activations of one.
//
//   x = recompute(block, x);                            // instead of block(x)
//
// Gradients are bit-identical to those without it. The second forward sees the same state as the
// first: random generators (dropout), autocast, and the block's buffers. Afterwards that state is
// restored, so that BatchNorm counts a batch once. The statistics that DdpOptions::sync_batch_norm
// reduces over the ranks are kept from the first forward. The block's parameters are inputs of one
// node of the graph, which returns their gradients, so hooks on parameters and Ddp work as usual.
// Nested use, several outputs and double backward are supported. One exception to bit-identical
// gradients: if one backward uses a parameter more than twice, in several recomputed blocks, its
// contributions are added in another order.
//
// A block must not change its inputs in place, and every tensor that needs a gradient must be an
// input or a parameter of the block. Both errors are detected and reported.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The forward of a block. It is called again from backward(), so everything it refers to must live
/// until then and must not change.
using BlockForward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// The tensors of a block besides its inputs.
struct BlockState {
  std::vector<at::Tensor> parameters = {};
  std::vector<at::Tensor> buffers = {};
};

/// Runs `forward` on `inputs` and returns its outputs; backward() runs it again. If no gradient is
/// needed (NoGradGuard, or no tensor requires one), `forward` is only called once.
/// Throws UsageError when `forward` changes an input in place. backward() throws UsageError when a
/// tensor that is neither an input nor in `state` needs a gradient.
[[nodiscard]] std::vector<at::Tensor> recompute(const BlockForward& forward,
                                                const BlockState& state,
                                                std::vector<at::Tensor> inputs);

/// A module holder: operator-> leads to parameters(), buffers() and forward(tensors…).
template <typename Block>
concept ModuleHolder = requires(const Block& block) {
  { block->parameters(true) } -> std::convertible_to<std::vector<at::Tensor>>;
  { block->buffers(true) } -> std::convertible_to<std::vector<at::Tensor>>;
};

/// The same for `block->forward(inputs…)`, which returns one tensor. Keeps the block alive until
/// the end of backward().
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
