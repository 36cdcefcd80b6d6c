#include "lockstep/collectives/process_group.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/collectives/backends_internal.h"
#include "lockstep/collectives/current_stream_internal.h"
#include "lockstep/collectives/device_alone_internal.h"
#include "lockstep/collectives/start_call_internal.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/net/shared_memory.h"
#include "lockstep/rendezvous/network_link.h"

namespace lockstep {
namespace {

using Operations = std::vector<std::shared_ptr<Operation>>;

std::optional<BackendKind> kind_of(Backend backend) {
  switch (backend) {
    case Backend::automatic:
      return std::nullopt;
    case Backend::shm:
      return BackendKind::shm;
    case Backend::tcp:
      return BackendKind::tcp;
    case Backend::hierarchical:
      return BackendKind::hierarchical;
    case Backend::mpi:
      return BackendKind::mpi;
    case Backend::ipc:
      return BackendKind::ipc;
    case Backend::staged:
      return BackendKind::staged;
    case Backend::nccl:
      return BackendKind::nccl;
  }
  return std::nullopt;
}

Message message_of(const TensorSpan& span, int peer, int tag) {
  return {.peer = peer,
          .tag = tag,
          .dtype = span.dtype,
          .count = count_of(span),
          .device = span.device,
          .stream = span.device.kind == DeviceKind::cpu ? nullptr : current_stream_of(span.device)};
}

// Returns `part` if `whole` has `size` times as many elements.
std::int64_t part_of(std::string_view verb, std::int64_t whole, std::int64_t part, int size) {
  if (whole == part * size) return part;
  throw UsageError(fmt::format("{} among {} ranks requires {} × {} elements on one side, not {}",
                               verb, size, size, part, whole));
}

void expect_same_dtype(std::string_view verb, const TensorSpan& input, const TensorSpan& output) {
  if (input.dtype == output.dtype) return;
  throw UsageError(fmt::format("{} of {} into {}: input and output must have the same dtype", verb,
                               to_string(input.dtype), to_string(output.dtype)));
}

void expect_pairs(std::string_view verb, at::TensorList inputs, at::TensorList outputs) {
  if (inputs.size() == outputs.size()) return;
  throw UsageError(
      fmt::format("{} of {} inputs into {} outputs: both lists must have the same length", verb,
                  inputs.size(), outputs.size()));
}

// A call whose input and output are the same span.
Call in_place_call(Collective kind, const TensorSpan& span, ReduceOp op,
                   const CallOptions& options) {
  auto call = call_of(kind, options);
  call.dtype = span.dtype;
  call.device = span.device;
  call.op = op;
  call.count = count_of(span);
  call.input = span.bytes;
  call.output = span.bytes;
  return call;
}

std::shared_ptr<Operation> start_all_reduce(Group& group, const at::Tensor& tensor, ReduceOp op,
                                            const CallOptions& options) {
  const auto span = span_of(group, tensor, "tensor of all_reduce");
  const auto call = in_place_call(Collective::all_reduce, span, op, options);
  note_write(tensor);
  return start_call(group, call, tensor, tensor);
}

std::shared_ptr<Operation> start_reduce_scatter(Group& group, const at::Tensor& output,
                                                const at::Tensor& input, ReduceOp op,
                                                const CallOptions& options) {
  const auto from = span_of(group, input, "input of reduce_scatter");
  const auto to = span_of(group, output, "output of reduce_scatter");
  expect_same_dtype("reduce_scatter", from, to);
  auto call = call_of(Collective::reduce_scatter, options);
  call.dtype = from.dtype;
  call.device = from.device;
  call.op = op;
  call.count = part_of("reduce_scatter", count_of(from), count_of(to), group.size());
  call.input = from.bytes;
  call.output = to.bytes;
  note_write(output);
  return start_call(group, call, output, input);
}

std::shared_ptr<Operation> start_all_gather(Group& group, const at::Tensor& output,
                                            const at::Tensor& input, const CallOptions& options) {
  const auto from = span_of(group, input, "input of all_gather");
  const auto to = span_of(group, output, "output of all_gather");
  expect_same_dtype("all_gather", from, to);
  auto call = call_of(Collective::all_gather, options);
  call.dtype = from.dtype;
  call.device = from.device;
  call.count = part_of("all_gather", count_of(to), count_of(from), group.size());
  call.input = from.bytes;
  call.output = to.bytes;
  note_write(output);
  return start_call(group, call, output, input);
}

std::shared_ptr<Operation> start_broadcast(Group& group, const at::Tensor& tensor, int root,
                                           const CallOptions& options) {
  const auto span = span_of(group, tensor, "tensor of broadcast");
  auto call = call_of(Collective::broadcast, options);
  call.dtype = span.dtype;
  call.device = span.device;
  call.root = root;
  call.count = count_of(span);
  if (group.rank() == root) {
    call.input = span.bytes;
  } else {
    call.output = span.bytes;
    note_write(tensor);
  }
  return start_call(group, call, tensor, tensor);
}

}  // namespace

struct ProcessGroup::Shared {
  std::weak_ptr<const void> holder;  // of the reservation
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<const Owners>> owners;  // mutex; by digest
};

ProcessGroup::ProcessGroup(const World& world, const ProcessGroupOptions& options)
    : ProcessGroup(make_group_with_devices(world,
                                           GroupOptions{.name = options.name,
                                                        .timeout = options.timeout,
                                                        .stall_report = options.stall_report},
                                           BackendOptions{.backend = kind_of(options.backend)},
                                           options.sums == Sums::fast, &cuda_functions)) {}

ProcessGroup::ProcessGroup(std::shared_ptr<Group> group)
    : group_(std::move(group)), shared_(std::make_shared<Shared>()) {}

int ProcessGroup::rank() const noexcept { return group_->rank(); }
int ProcessGroup::size() const noexcept { return group_->size(); }
int ProcessGroup::global_rank(int rank) const { return group_->global_rank(rank); }
std::string ProcessGroup::backend(at::Device device) const {
  return device.is_cpu() ? group_->kind() : group_->device_kind();
}
std::string ProcessGroup::backend_reason(at::Device device) const {
  return device.is_cpu() ? group_->reason() : group_->device_reason();
}

std::optional<NetworkLink> ProcessGroup::link() const {
  const auto kind = group_->kind();
  if (kind != "tcp" && kind != "hierarchical" && kind != "mpi") return std::nullopt;
  return network_link(Environment::of_process());
}

RankPage& ProcessGroup::page() const noexcept { return group_->page(); }

void ProcessGroup::expect_usable(at::Device device, std::string_view what) const {
  (void)usable_device(*group_, device, what);
}

ProcessGroup ProcessGroup::split(int color, int key) const {
  return ProcessGroup(group_->split(color, key));
}

ProcessGroup ProcessGroup::reserve() const {
  auto copy = *this;
  copy.reserved_ = std::make_shared<const int>(0);
  shared_->holder = copy.reserved_;
  return copy;
}

bool ProcessGroup::is_reserved() const noexcept { return !shared_->holder.expired(); }

at::Tensor ProcessGroup::allocate(std::int64_t bytes, at::Device device) const {
  const auto where = usable_device(*group_, device, "memory to allocate");
  if (bytes < 0) throw UsageError(fmt::format("cannot allocate {} bytes", bytes));
  const at::Device own(device.type(), device.is_cpu() ? at::DeviceIndex{-1}
                                                      : static_cast<at::DeviceIndex>(where.index));
  const auto options = at::TensorOptions().dtype(at::kByte).device(own);
  if (device.is_cuda() && runs_alone(*group_)) return at::zeros({bytes}, options);
  auto memory = group_->allocate(static_cast<std::size_t>(bytes), where);
  auto* start = memory->bytes().data();
  return at::from_blob(
      start, {bytes}, [memory = std::move(memory)](void* /*start*/) mutable { memory.reset(); },
      options);
}

SharedRegion ProcessGroup::allocate_shared(std::int64_t bytes) const {
  if (bytes < 0) throw UsageError(fmt::format("cannot allocate {} bytes", bytes));
  const auto ranks = static_cast<std::size_t>(size());
  const auto part = whole_pages((static_cast<std::size_t>(bytes) + ranks - 1) / ranks);
  auto memory = group_->allocate(part, {});
  if (bytes > 0 && memory->all_parts().empty()) {
    throw UsageError(
        fmt::format("memory that all ranks share needs backend shm, of ranks on one host; the "
                    "backend of this group is {}: with DdpOptions, use Copies::per_rank",
                    group_->kind()));
  }
  return {std::move(memory), bytes};
}

Work ProcessGroup::all_reduce(at::Tensor& tensor, ReduceOp op, const CallOptions& options) const {
  return {group_, {start_all_reduce(*group_, tensor, op, options)}};
}

Work ProcessGroup::all_reduce(at::TensorList tensors, ReduceOp op,
                              const CallOptions& options) const {
  Operations operations;
  for (const auto& tensor : tensors) {
    operations.push_back(start_all_reduce(*group_, tensor, op, options));
  }
  return {group_, std::move(operations)};
}

Work ProcessGroup::reduce_scatter(at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                  const CallOptions& options) const {
  return {group_, {start_reduce_scatter(*group_, output, input, op, options)}};
}

Work ProcessGroup::reduce_scatter(at::TensorList outputs, at::TensorList inputs, ReduceOp op,
                                  const CallOptions& options) const {
  expect_pairs("reduce_scatter", inputs, outputs);
  Operations operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(start_reduce_scatter(*group_, outputs[i], inputs[i], op, options));
  }
  return {group_, std::move(operations)};
}

Work ProcessGroup::all_gather(at::Tensor& output, const at::Tensor& input,
                              const CallOptions& options) const {
  return {group_, {start_all_gather(*group_, output, input, options)}};
}

Work ProcessGroup::all_gather(at::TensorList outputs, at::TensorList inputs,
                              const CallOptions& options) const {
  expect_pairs("all_gather", inputs, outputs);
  Operations operations;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(start_all_gather(*group_, outputs[i], inputs[i], options));
  }
  return {group_, std::move(operations)};
}

Work ProcessGroup::broadcast(at::Tensor& tensor, int root, const CallOptions& options) const {
  return {group_, {start_broadcast(*group_, tensor, root, options)}};
}

Work ProcessGroup::broadcast(at::TensorList tensors, int root, const CallOptions& options) const {
  Operations operations;
  for (const auto& tensor : tensors) {
    operations.push_back(start_broadcast(*group_, tensor, root, options));
  }
  return {group_, std::move(operations)};
}

Work ProcessGroup::reduce(at::Tensor& tensor, int root, ReduceOp op,
                          const CallOptions& options) const {
  const auto span = span_of(*group_, tensor, "tensor of reduce");
  auto call = call_of(Collective::reduce, options);
  call.dtype = span.dtype;
  call.device = span.device;
  call.op = op;
  call.root = root;
  call.count = count_of(span);
  call.input = span.bytes;
  if (rank() == root) {
    call.output = span.bytes;
    note_write(tensor);
  }
  return {group_, {start_call(*group_, call, tensor, tensor)}};
}

Work ProcessGroup::gather(at::Tensor& output, const at::Tensor& input, int root,
                          const CallOptions& options) const {
  const auto from = span_of(*group_, input, "input of gather");
  auto call = call_of(Collective::gather, options);
  call.dtype = from.dtype;
  call.device = from.device;
  call.root = root;
  call.count = count_of(from);
  call.input = from.bytes;
  if (rank() == root) {
    const auto to = span_of(*group_, output, "output of gather");
    expect_same_dtype("gather", from, to);
    (void)part_of("gather", count_of(to), count_of(from), size());
    call.output = to.bytes;
    note_write(output);
  }
  return {group_, {start_call(*group_, call, output, input)}};
}

Work ProcessGroup::scatter(at::Tensor& output, const at::Tensor& input, int root,
                           const CallOptions& options) const {
  const auto to = span_of(*group_, output, "output of scatter");
  auto call = call_of(Collective::scatter, options);
  call.dtype = to.dtype;
  call.device = to.device;
  call.root = root;
  call.count = count_of(to);
  call.output = to.bytes;
  if (rank() == root) {
    const auto from = span_of(*group_, input, "input of scatter");
    expect_same_dtype("scatter", from, to);
    (void)part_of("scatter", count_of(from), count_of(to), size());
    call.input = from.bytes;
  }
  note_write(output);
  return {group_, {start_call(*group_, call, output, input)}};
}

Work ProcessGroup::all_to_all(at::Tensor& output, const at::Tensor& input,
                              const CallOptions& options) const {
  const auto from = span_of(*group_, input, "input of all_to_all");
  const auto to = span_of(*group_, output, "output of all_to_all");
  expect_same_dtype("all_to_all", from, to);
  auto call = call_of(Collective::all_to_all, options);
  call.dtype = from.dtype;
  call.device = from.device;
  call.count = count_of(from) / size();
  (void)part_of("all_to_all", count_of(from), call.count, size());
  (void)part_of("all_to_all", count_of(to), call.count, size());
  call.input = from.bytes;
  call.output = to.bytes;
  note_write(output);
  return {group_, {start_call(*group_, call, output, input)}};
}

Work ProcessGroup::start_by_owners(Collective kind, at::Tensor& range,
                                   std::shared_ptr<const Owners> owners, ReduceOp op,
                                   const CallOptions& options) const {
  const auto span = span_of(*group_, range, fmt::format("range of {}", to_string(kind)));
  auto call = in_place_call(kind, span, op, options);
  call.owners = owners.get();
  note_write(range);
  auto operation = start_call(*group_, call, range, range, owners);
  const std::lock_guard lock(shared_->mutex);
  std::erase_if(shared_->owners, [](const auto& known) { return known.second.expired(); });
  shared_->owners.insert_or_assign(owners->digest(), owners);
  return {group_, {std::move(operation)}};
}

std::shared_ptr<const Owners> ProcessGroup::find_owners(std::uint64_t digest) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->owners.find(digest);
  return found == shared_->owners.end() ? nullptr : found->second.lock();
}

Work ProcessGroup::reduce_to_owners(at::Tensor& range, std::shared_ptr<const Owners> owners,
                                    ReduceOp op, const CallOptions& options) const {
  return start_by_owners(Collective::reduce_to_owners, range, std::move(owners), op, options);
}

Work ProcessGroup::gather_from_owners(at::Tensor& range, std::shared_ptr<const Owners> owners,
                                      const CallOptions& options) const {
  return start_by_owners(Collective::gather_from_owners, range, std::move(owners), ReduceOp::sum,
                         options);
}

Work ProcessGroup::barrier(const CallOptions& options) const {
  return {group_, {group_->start(call_of(Collective::barrier, options), nullptr)}};
}

Work ProcessGroup::send(const at::Tensor& tensor, int to, int tag) const {
  const auto span = span_of(*group_, tensor, "tensor of send");
  return {group_, {group_->send(message_of(span, to, tag), span.bytes, keep({tensor}))}};
}

Work ProcessGroup::receive(at::Tensor& tensor, int from, int tag) const {
  const auto span = span_of(*group_, tensor, "tensor of receive");
  note_write(tensor);
  return {group_, {group_->receive(message_of(span, from, tag), span.bytes, keep({tensor}))}};
}

}  // namespace lockstep
