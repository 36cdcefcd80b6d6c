// Writes named fp32 tensors to a safetensors file, for Python's reader.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Tensors of other dtypes are converted to fp32. Throws std::runtime_error if the write fails.
void write_tensors(const std::string& path, const NamedTensors& tensors);

}  // namespace lockstep
