// Conversion between LibTorch tensors and their safetensors description.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lockstep/formats/safetensors_header.h"

namespace lockstep {

/// Name, dtype and shape of a tensor. Throws UsageError, naming the tensor, for unsupported ones:
/// undefined, sparse or quantized tensors, and dtypes that safetensors does not have.
[[nodiscard]] SafetensorsEntry entry_of(const std::string& name, const at::Tensor& tensor);

/// The same for a tensor that no rank holds whole.
[[nodiscard]] SafetensorsEntry entry_of(const std::string& name, at::ScalarType dtype,
                                        at::IntArrayRef sizes);

/// The LibTorch dtype. Throws UsageError for a dtype that LibTorch does not have.
[[nodiscard]] at::ScalarType scalar_type_of(SafetensorsDtype dtype);

/// "F32[3, 4]".
[[nodiscard]] std::string kind_words(const SafetensorsEntry& entry);

}  // namespace lockstep
