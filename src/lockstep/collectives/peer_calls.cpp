#include "lockstep/collectives/peer_calls.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"

namespace lockstep {
namespace {

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return at::kFloat;
    case DType::float64:
      return at::kDouble;
    case DType::float16:
      return at::kHalf;
    case DType::bfloat16:
      return at::kBFloat16;
    case DType::int8:
      return at::kChar;
    case DType::int32:
      return at::kInt;
    case DType::int64:
      return at::kLong;
    case DType::uint8:
      return at::kByte;
    case DType::boolean:
      return at::kBool;
  }
  return at::kByte;
}

template <typename T>
at::Scalar limit_of(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity) {
    return op == ReduceOp::min ? Limits::infinity() : -Limits::infinity();
  } else {
    return static_cast<std::int64_t>(op == ReduceOp::min ? Limits::max() : Limits::lowest());
  }
}

// The value that changes no minimum or maximum.
at::Scalar limit_of(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::int8:
      return limit_of<std::int8_t>(op);
    case DType::int32:
      return limit_of<std::int32_t>(op);
    case DType::int64:
      return limit_of<std::int64_t>(op);
    case DType::uint8:
      return limit_of<std::uint8_t>(op);
    case DType::boolean:
      return op == ReduceOp::min ? 1 : 0;
    default:
      return limit_of<double>(op);
  }
}

at::Scalar neutral_value(DType dtype, ReduceOp op) {
  if (op == ReduceOp::min || op == ReduceOp::max) return limit_of(dtype, op);
  return op == ReduceOp::product ? 1 : 0;
}

at::TensorOptions type_of(const CallDescriptor& call, at::Device device) {
  const auto where = call.device == DeviceKind::cpu ? at::Device(at::kCPU) : device;
  return at::dtype(scalar_type_of(call.dtype)).device(where);
}

// What to do instead of a call that has no neutral contribution; null if it has one. The record of
// a call has only the digest of its owners.
const char* fix_of(const CallDescriptor& call, int rank, bool knows_owners) {
  if (call.has_leaves) return "leave CallOptions::leaves out";
  switch (call.kind) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::reduce_to_owners:
      if (call.op == ReduceOp::average) {
        return "use ReduceOp::weighted_average with the number of samples as weight";
      }
      return call.kind == Collective::reduce_to_owners && !knows_owners
                 ? "make the call with the same owners on every rank before the loop, and keep them"
                 : nullptr;
    case Collective::broadcast:
    case Collective::scatter:
      return call.root == rank
                 ? "make it before the loop, or let a rank that has a batch be its root"
                 : nullptr;
    case Collective::barrier:
      return nullptr;
    default:
      return "use a reduction, or make the call before the loop";
  }
}

}  // namespace

std::string_view PeerCall::name() const noexcept { return record_->descriptor.name; }
std::string PeerCall::text() const { return to_string(record_->descriptor); }

std::optional<PeerCall> PeerCalls::next_of(int rank) const {
  auto record = group_.group_->next_call_of(rank);
  if (!record) return std::nullopt;
  PeerCall call;
  call.record_ = std::make_shared<const CallRecord>(*record);
  return call;
}

std::uint64_t PeerCalls::num_entered(int rank) const { return group_.group_->num_entered(rank); }

std::chrono::milliseconds PeerCalls::timeout() const { return group_.group_->options().timeout; }

void PeerCalls::advance() const { group_.group_->advance(); }

Work PeerCalls::answer(const PeerCall& peer, at::Device device) const {
  const auto& call = peer.record_->descriptor;
  const auto owners = group_.find_owners(call.owners);
  if (const auto* fix = fix_of(call, group_.rank(), owners != nullptr)) {
    throw UsageError(
        fmt::format("a rank without a batch cannot take part in {}, which other ranks have "
                    "entered: it has no value to contribute. {}, or give every rank a batch "
                    "(Tail::drop, Tail::pad)",
                    peer.text(), fix));
  }
  CallOptions options{.name = peer.name()};
  if (call.has_flags) options.flags = CallFlags{.equal = peer.record_->flags.equal, .absent = true};
  if (reduces(call.kind) && call.op == ReduceOp::weighted_average) options.weight = 0;
  const auto type = type_of(call, device);
  auto own = at::empty({call.count}, type);
  const auto neutral = neutral_value(call.dtype, call.op);
  switch (call.kind) {
    case Collective::all_reduce:
      own.fill_(neutral);
      return group_.all_reduce(own, call.op, options);
    case Collective::reduce:
      own.fill_(neutral);
      return group_.reduce(own, call.root, call.op, options);
    case Collective::reduce_scatter:
      return group_.reduce_scatter(own, at::full({call.count * group_.size()}, neutral, type),
                                   call.op, options);
    case Collective::reduce_to_owners:
      own.fill_(neutral);
      return group_.reduce_to_owners(own, owners, call.op, options);
    case Collective::broadcast:
      return group_.broadcast(own, call.root, options);
    case Collective::scatter:
      return group_.scatter(own, {}, call.root, options);
    default:
      return group_.barrier(options);
  }
}

Work PeerCalls::answer_as_failed(const PeerCall& peer, at::Device device,
                                 const CallFlags& flags) const {
  const auto& call = peer.record_->descriptor;
  const auto owners = group_.find_owners(call.owners);
  if (call.has_leaves || call.kind == Collective::allocate || call.kind == Collective::split ||
      (has_owners(call.kind) && !owners)) {
    throw UsageError(
        fmt::format("a rank that has failed cannot take part in {}, which other ranks "
                    "have entered: make that call before the loop",
                    peer.text()));
  }
  CallOptions options{.name = peer.name()};
  if (call.has_flags) {
    options.flags = flags;
    options.flags->equal = peer.record_->flags.equal;
  }
  if (reduces(call.kind) && call.op == ReduceOp::weighted_average) options.weight = 0;
  const auto type = type_of(call, device);
  auto part = at::zeros({call.count}, type);
  const auto whole = [&] { return at::zeros({call.count * group_.size()}, type); };
  auto output = at::Tensor();
  switch (call.kind) {
    case Collective::all_reduce:
      return group_.all_reduce(part, call.op, options);
    case Collective::reduce:
      return group_.reduce(part, call.root, call.op, options);
    case Collective::reduce_scatter:
      return group_.reduce_scatter(part, whole(), call.op, options);
    case Collective::reduce_to_owners:
      return group_.reduce_to_owners(part, owners, call.op, options);
    case Collective::gather_from_owners:
      return group_.gather_from_owners(part, owners, options);
    case Collective::all_gather:
      output = whole();
      return group_.all_gather(output, part, options);
    case Collective::gather:
      output = whole();
      return group_.gather(output, part, call.root, options);
    case Collective::broadcast:
      return group_.broadcast(part, call.root, options);
    case Collective::scatter:
      return group_.scatter(part, whole(), call.root, options);
    case Collective::all_to_all:
      output = whole();
      return group_.all_to_all(output, whole(), options);
    default:
      return group_.barrier(options);
  }
}

}  // namespace lockstep
