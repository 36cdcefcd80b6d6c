// Makes the steps of all ranges of a segment with the kernels of an optimizer: on the CPU range by
// range, on a GPU with one launch for the constants and one for the elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/half.h"
#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/parallel.h"
#include "lockstep/train/device_table_internal.h"
#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

/// Calls call(stretch) with a Stretch<Stored> of `range` of the segment, where Stored is its dtype.
/// `add_state(stretch, state_at)` sets the fields beyond values, gradients and masters; state_at(i)
/// is a pointer to state i.
template <template <typename> typename Stretch, typename AddState, typename Call>
void with_stretch(const SegmentMemory& memory, const OwnedRun& range, const AddState& add_state,
                  const Call& call) {
  const auto run = [&]<typename Stored>(Stretch<Stored> stretch) {
    using Wide = WideOf<Stored>;
    stretch.values = static_cast<Stored*>(memory.values.data_ptr()) +
                     (memory.values_are_packed ? range.packed_begin : range.begin);
    if (memory.old_values.defined()) {
      stretch.old_values =
          static_cast<const Stored*>(memory.old_values.const_data_ptr()) + range.begin;
      stretch.caching = memory.caching;
    }
    stretch.gradients = static_cast<const Stored*>(memory.gradients.const_data_ptr()) +
                        (memory.gradients_are_packed ? range.packed_begin : range.begin);
    stretch.gradients_are_packed = memory.gradients_are_packed;
    if (memory.masters.defined()) {
      stretch.masters = static_cast<Wide*>(memory.masters.data_ptr()) + range.packed_begin;
    }
    stretch.count = static_cast<std::size_t>(range.count);
    add_state(stretch, [&](std::size_t which) {
      return static_cast<Wide*>(memory.state.at(which).data_ptr()) + range.packed_begin;
    });
    call(stretch);
  };
  switch (memory.values.scalar_type()) {
    case at::kDouble:
      return run(Stretch<double>{});
    case at::kBFloat16:
      return run(Stretch<BFloat16>{});
    default:  // the constructor accepts no other dtype
      return run(Stretch<float>{});
  }
}

/// Steps all `ranges` of a segment on the CPU, or all parameters of memory.device. `step_of(rule,
/// lr, weight_decay, t)` gives the constants of a step; `pass(part, constants)` steps a part of
/// host memory, `launch(stretch, chunks, constants, skip, stream)` all chunks of device memory.
template <template <typename> typename Stretch, typename AddState, typename Rule, typename StepOf,
          typename Pass, typename Launch>
void step_segment(const SegmentMemory& memory, std::span<const RangeStep> ranges,
                  const AddState& add_state, const Rule& rule, const StepOf& step_of,
                  const Pass& pass, const Launch& launch) {
  if (memory.values.is_cpu()) {
    for (const auto& range : ranges) {
      const auto& group = range.group;
      const auto step = step_of(rule, group.lr, group.weight_decay, group.step);
      with_stretch<Stretch>(memory, range.elements, add_state, [&](const auto& stretch) {
        constexpr std::size_t kUnit = 32;  // a cache line of 16-bit elements: threads share no line
        in_parts(stretch.count, kUnit,
                 [&](std::size_t begin, std::size_t end) { pass(stretch.part(begin, end), step); });
      });
    }
    return;
  }
  using Step = decltype(step_of(rule, 0.0, 0.0, std::int64_t{1}));
  const auto device = memory.values.device();
  const c10::DeviceGuard guard(device);
  const auto stream = current_stream(device);
  const auto& [table, counts, inputs] = memory.device;
  const auto parameters = table->template parameters<Step>(counts);
  launch_steps(rule, parameters, inputs, stream);
  const OwnedRun whole{.begin = 0, .count = memory.values.numel(), .packed_begin = 0};
  with_stretch<Stretch>(memory, whole, add_state, [&](const auto& stretch) {
    launch(stretch, table->chunks(), parameters.steps, inputs.skip, stream);
  });
}

}  // namespace lockstep
