// A tensor as safetensors files describe it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "lockstep/formats/safetensors_header.h"

namespace lockstep {

/// Name, dtype and shape. Throws UsageError that names the tensor when files cannot hold it: sparse
/// and quantized ones, and dtypes that safetensors lacks.
[[nodiscard]] SafetensorsEntry entry_of(const std::string& name, const at::Tensor& tensor);

/// The dtype in LibTorch. Throws UsageError naming one that LibTorch lacks.
[[nodiscard]] at::ScalarType scalar_type_of(SafetensorsDtype dtype);

/// "F32[3, 4]".
[[nodiscard]] std::string kind_words(const SafetensorsEntry& entry);

}  // namespace lockstep
