// The constants of an optimizer's next step, one thread per parameter. Step counts are in device
// memory, because a skipped step does not count and the host does not know which steps are skipped.
#include "lockstep/kernels/launch_internal.h"

namespace lockstep {
namespace {

__device__ AdamStep step_of(const AdamRule& rule, double lr, double weight_decay, std::int64_t t) {
  return adam_step(rule, lr, weight_decay, t);
}
__device__ SgdStep step_of(const SgdRule& rule, double lr, double weight_decay, std::int64_t t) {
  return sgd_step(rule, lr, weight_decay, t);
}

template <typename Rule, typename Step>
__global__ void prepare(Rule rule, DeviceParameters<Step> parameters, DeviceStepInputs inputs) {
  if (inputs.skip != nullptr && *inputs.skip != 0) return;
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= parameters.num_present) return;
  const auto index = parameters.present[i];
  const double lr = inputs.lr_cell != nullptr ? *inputs.lr_cell : inputs.lr;
  const auto group = parameters.groups[index];
  const auto t = ++parameters.counts[index];
  parameters.steps[index] = step_of(rule, lr * group.lr_factor, group.weight_decay, t);
}

template <typename Rule, typename Step>
void launch(const Rule& rule, const DeviceParameters<Step>& parameters,
            const DeviceStepInputs& inputs, DeviceStream stream) {
  if (parameters.num_present == 0) return;
  prepare<<<blocks_of(parameters.num_present, kThreads), kThreads, 0, cuda_stream(stream)>>>(
      rule, parameters, inputs);
  expect_launched("the constants of an optimizer step");
}

}  // namespace

void launch_steps(const AdamRule& rule, const DeviceParameters<AdamStep>& parameters,
                  const DeviceStepInputs& inputs, DeviceStream stream) {
  launch(rule, parameters, inputs, stream);
}
void launch_steps(const SgdRule& rule, const DeviceParameters<SgdStep>& parameters,
                  const DeviceStepInputs& inputs, DeviceStream stream) {
  launch(rule, parameters, inputs, stream);
}

}  // namespace lockstep
