// The passes of kernels/int8_blocks.h on tensors: loops on the CPU, LibTorch's operators elsewhere.
// All tensors are one-dimensional and contiguous; values are float32, encoded ones uint8.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

/// Encodes values + error into `encoded`; `residual` gets what is lost. `error` may be undefined.
void int8_encode(const at::Tensor& values, const at::Tensor& error, const at::Tensor& residual,
                 const at::Tensor& encoded);
void int8_decode(const at::Tensor& encoded, const at::Tensor& values);
/// result = (sum over the ranks, in the order of `plan`) / divisor: of the decoded tensors, and of
/// `exact` in place of that of rank `own`. `result` may be `exact`.
void int8_average(const TreePlan& plan, const std::vector<at::Tensor>& encoded, int own,
                  const at::Tensor& exact, double divisor, const at::Tensor& result);

// With LibTorch's operators, on any device.
void int8_encode_by_operators(const at::Tensor& values, const at::Tensor& error,
                              const at::Tensor& residual, const at::Tensor& encoded);
void int8_decode_by_operators(const at::Tensor& encoded, const at::Tensor& values);

}  // namespace lockstep
