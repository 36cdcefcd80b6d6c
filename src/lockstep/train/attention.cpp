#include "lockstep/train/attention.h"

#include <ATen/ops/scaled_dot_product_attention.h>

namespace lockstep {
namespace {

bool is_16_bit(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

}  // namespace

bool keeps_attention_in_float(AttentionPrecision precision, at::ScalarType dtype,
                              const AutocastState& autocast) noexcept {
  const bool would_be_16_bit = autocast.enabled ? dtype != at::kDouble : is_16_bit(dtype);
  if (!would_be_16_bit || precision == AttentionPrecision::as_given) return false;
  return precision == AttentionPrecision::float32 || autocast.device == at::kCPU;
}

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options) {
  const auto state = autocast_state(query.device().type());
  if (!keeps_attention_in_float(options.precision, query.scalar_type(), state)) {
    return at::scaled_dot_product_attention(query, key, value, options.mask, options.dropout,
                                            options.is_causal, options.scale);
  }
  const Autocast off(at::kFloat, state.device);
  auto mask = options.mask;
  if (mask && is_16_bit(mask->scalar_type())) mask = mask->to(at::kFloat);
  return at::scaled_dot_product_attention(query.to(at::kFloat), key.to(at::kFloat),
                                          value.to(at::kFloat), mask, options.dropout,
                                          options.is_causal, options.scale)
      .to(state.enabled ? state.dtype : query.scalar_type());
}

}  // namespace lockstep
