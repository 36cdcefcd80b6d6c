// Scaled dot-product attention in the faster precision. On the CPU, LibTorch 2.11's 16-bit kernel
// computes element by element: forward and backward together take 25 to 30 times as long as in
// float32, casts included (measured on Neoverse V1; benchmarks/train_benchmark prints it). So on
// the CPU attention is computed in float32 under autocast, which is also more accurate. The result
// has the dtype that LibTorch's would have.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "lockstep/train/autocast.h"

namespace lockstep {

enum class AttentionPrecision {
  automatic,  // float32 on the CPU, autocast's dtype on other devices
  as_given,   // LibTorch's choice
  float32,    // float32 on every device
};

struct AttentionOptions {
  std::optional<at::Tensor> mask = {};
  double dropout = 0;
  bool is_causal = false;
  std::optional<double> scale = {};  // nullopt: 1 / sqrt(head size)
  AttentionPrecision precision = AttentionPrecision::automatic;
};

/// Whether attention on tensors of `dtype` is computed in float32 instead of 16 bits, for the given
/// state of autocast on their device.
[[nodiscard]] bool keeps_attention_in_float(AttentionPrecision precision, at::ScalarType dtype,
                                            const AutocastState& autocast) noexcept;

/// Attention of `query` over `key` and `value`, each (..., heads, length, head size). Throws
/// LibTorch's error for shapes that do not fit.
[[nodiscard]] at::Tensor attention(const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const AttentionOptions& options = {});

}  // namespace lockstep
