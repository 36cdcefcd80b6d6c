// How large a GPT is, without LibTorch: for those who plan a run before they load it.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::models {

enum class GptHead {
  tied,     // the logits of a token are products with its own embedding, as in GPT-2
  separate  // a matrix of its own: lm_head.weight
};

enum class GptKernels {
  own,      // quicker; the last bits are not LibTorch's
  libtorch  // every operator is LibTorch's: the same model in Python gives the same bits
};

struct GptOptions {
  std::int64_t vocabulary = 50257;  // GPT-2's; 256 for bytes
  std::int64_t context = 1024;      // the longest sequence
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  double dropout = 0;
  GptHead head = GptHead::tied;
  GptKernels kernels = GptKernels::own;
};

/// The shape called `size`: tiny (4 layers, width 128, context 128, bytes), small, medium, large,
/// xl (GPT-2's own: 124 M, 355 M, 774 M, 1.56 G parameters). Throws UsageError that lists them for
/// another name.
[[nodiscard]] GptOptions gpt_shape(std::string_view size);

/// How many parameters a Gpt of these options has, without making one.
[[nodiscard]] std::int64_t num_parameters(const GptOptions& options);

}  // namespace lockstep::models
