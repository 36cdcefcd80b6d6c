// A call on tensors, handed to the group: its memory, its stream, and what is kept until it is
// done.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/owners.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/collectives/tensor_span_internal.h"
#include "lockstep/fabric/group.h"

namespace lockstep {

/// Keeps tensors and owners alive until an operation is done.
[[nodiscard]] std::shared_ptr<const void> keep(std::vector<at::Tensor> tensors,
                                               std::shared_ptr<const Owners> owners = nullptr);

/// The elements of a span.
[[nodiscard]] std::int64_t count_of(const TensorSpan& span);

/// A call with these options, without its data.
[[nodiscard]] Call call_of(Collective kind, const CallOptions& options);

/// Starts `call`, whose spans are those of the tensors, and keeps them. Throws as Group::start().
[[nodiscard]] std::shared_ptr<Operation> start_call(Group& group, const Call& call,
                                                    const at::Tensor& output,
                                                    const at::Tensor& input,
                                                    std::shared_ptr<const Owners> owners = nullptr);

}  // namespace lockstep
