// Loads saved bytes into the tensors of a tracked object, in place, after all differences have been
// checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/tracked.h"
#include "lockstep/formats/safetensors_file.h"

namespace lockstep {

/// The differences between `file` and `tensors`, one clause per kind, with the tensors' names:
/// missing in the file, missing in the program, different shape or dtype. Empty if all match. Each
/// clause names at most 8 tensors.
[[nodiscard]] std::vector<std::string> differences(const SafetensorsFile& file,
                                                   const NamedTensors& tensors,
                                                   const ShardedTensors& sharded = {});

/// Copies the bytes of `file` into the tensors, without gradients. differences() must be empty.
void copy_into(const NamedTensors& tensors, const SafetensorsFile& file);
/// The same for the pieces that this rank has; reads only their bytes. Throws UsageError for a
/// piece that exceeds its tensor or has another dtype.
void copy_into(const ShardedTensors& sharded, const SafetensorsFile& file);

/// A copy of the tensor `name` in `file`. Throws UsageError if the file has none.
[[nodiscard]] at::Tensor read_tensor(const SafetensorsFile& file, std::string_view name);

}  // namespace lockstep
