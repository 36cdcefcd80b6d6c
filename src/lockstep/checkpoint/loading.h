// The way back: saved bytes into the tensors of a tracked thing, in place, once it is known that
// everything fits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/tracked.h"
#include "lockstep/formats/safetensors_file.h"

namespace lockstep {

/// What keeps `file` from being loaded into `tensors`, a clause each, naming the tensors: missing
/// in the file, unknown to the program, of another shape or dtype. Empty when all fits. The list is
/// short however much differs.
[[nodiscard]] std::vector<std::string> differences(const SafetensorsFile& file,
                                                   const NamedTensors& tensors);

/// Copies each tensor's bytes from `file` into it, under no grad. There are no differences().
void copy_into(const NamedTensors& tensors, const SafetensorsFile& file);

/// The tensor called `name` in `file`, as one of LibTorch's that owns its memory. Throws UsageError
/// when there is none.
[[nodiscard]] at::Tensor read_tensor(const SafetensorsFile& file, std::string_view name);

}  // namespace lockstep
