// The environment variable with which cuBLAS is deterministic. cuBLAS reads it when it is first
// used.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

inline constexpr char kCublasVariable[] = "CUBLAS_WORKSPACE_CONFIG";
inline constexpr char kDeterministicCublas[] = ":4096:8";

/// Whether the variable, which has `value`, must be set to kDeterministicCublas and still can be.
/// Pure. Throws UsageError if it is too late, and for another value, which the user chose.
[[nodiscard]] bool must_set_cublas(const std::optional<std::string>& value, bool cuda_is_in_use);

}  // namespace lockstep
