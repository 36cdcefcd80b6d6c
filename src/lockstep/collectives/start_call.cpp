#include "lockstep/collectives/start_call_internal.h"

#include <utility>

#include "lockstep/collectives/current_stream_internal.h"
#include "lockstep/collectives/device_alone_internal.h"

namespace lockstep {
namespace {

struct Kept {
  std::vector<at::Tensor> tensors;
  std::shared_ptr<const Owners> owners = {};
};

// The tensors are processed here, and the call carries name and flags only.
std::shared_ptr<Operation> start_alone(Group& group, const Call& call, const at::Tensor& output,
                                       const at::Tensor& input) {
  static const Owners no_elements(1, {});
  auto without_data = call;
  if (has_owners(call.kind)) {
    expect_valid(call, group.rank(), group.size());
    without_data.owners = &no_elements;
  }
  without_data.count = 0;
  without_data.input = {};
  without_data.output = {};
  without_data.device = {};
  auto operation = group.start(without_data, keep({input, output}));  // refuses an invalid call
  operation->processed_on = call.device;
  run_alone_on_device(call, output, input);
  return operation;
}

}  // namespace

std::shared_ptr<const void> keep(std::vector<at::Tensor> tensors,
                                 std::shared_ptr<const Owners> owners) {
  return std::make_shared<const Kept>(Kept{std::move(tensors), std::move(owners)});
}

std::int64_t count_of(const TensorSpan& span) {
  return static_cast<std::int64_t>(span.bytes.size() / bytes_of(span.dtype));
}

Call call_of(Collective kind, const CallOptions& options) {
  return {.kind = kind,
          .name = options.name,
          .flags = options.flags,
          .weight = options.weight,
          .leaves = options.leaves};
}

std::shared_ptr<Operation> start_call(Group& group, const Call& call, const at::Tensor& output,
                                      const at::Tensor& input,
                                      std::shared_ptr<const Owners> owners) {
  auto kept = keep({input, output}, std::move(owners));
  if (call.device.kind == DeviceKind::cpu) return group.start(call, std::move(kept));
  if (runs_alone(group)) return start_alone(group, call, output, input);
  // The operation keeps the tensors until its work has ended: LibTorch's allocator, which knows
  // nothing of the group's streams, does not reuse their memory before.
  auto on_stream = call;
  on_stream.stream = current_stream_of(call.device);
  return group.start(on_stream, std::move(kept));
}

}  // namespace lockstep
