// The shape of a GPT, without LibTorch: for code that runs before LibTorch is loaded.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::models {

enum class GptHead {
  tied,     // the output matrix is the token embedding, as in GPT-2
  separate  // the output matrix is a parameter of its own: lm_head.weight
};

enum class GptKernels {
  own,      // faster; not bit-identical to LibTorch's
  libtorch  // LibTorch's operators: bit-identical to the same model in Python
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

/// The shape called `size`: tiny (4 layers, width 128, context 128, bytes), or those of GPT-2:
/// small, medium, large, xl (124 M, 355 M, 774 M, 1.56 B parameters). Throws UsageError that lists
/// them for any other name.
[[nodiscard]] GptOptions gpt_shape(std::string_view size);

/// The number of parameters of a Gpt with these options.
[[nodiscard]] std::int64_t num_parameters(const GptOptions& options);

}  // namespace lockstep::models
