#include "cli/bench/comm/own_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/collectives/backends.h"

namespace lockstep::cli {

OwnBackend::OwnBackend(std::shared_ptr<Group> group, const CommRequest& request)
    : group_(std::move(group)), ordinary_(request.arena_bytes + kBufferAlignment) {
  const auto uses_registered = [](const CommCase& timed) {
    return timed.memory == MemoryKind::registered;
  };
  if (std::ranges::any_of(request.cases, uses_registered)) {
    registered_ = group_->allocate(request.arena_bytes);
  }
  void* start = ordinary_.data();
  auto room = ordinary_.size();
  std::align(kBufferAlignment, request.arena_bytes, start, room);
  ordinary_arena_ = {static_cast<std::byte*>(start), request.arena_bytes};
}

void OwnBackend::call(const CommCase& timed, const CallMemory& memory) {
  auto call = call_of(timed, group_->size());
  call.input = memory.input;
  call.output = memory.output;
  if (has_owners(timed.op) && timed != owned_case_) {
    owners_ = owners_of(timed, group_->size());
    owned_case_ = timed;
  }
  if (has_owners(timed.op)) call.owners = &*owners_;
  group_->wait(*group_->start(call, nullptr));
}

void OwnBackend::barrier() { group_->wait(*group_->start({.name = "bench"}, nullptr)); }

void OwnBackend::max_over_ranks(std::span<double> values) {
  group_->wait(*group_->start({.kind = Collective::all_reduce,
                               .dtype = DType::float64,
                               .op = ReduceOp::max,
                               .count = static_cast<std::int64_t>(values.size()),
                               .name = "times",
                               .input = std::as_bytes(values),
                               .output = std::as_writable_bytes(values)},
                              nullptr));
}

std::vector<CommAnswer> measure_own(const World& world, const CommRequest& request, int rounds) {
  if (world.size() != request.ranks) {
    throw UsageError(
        fmt::format("the request is for {} ranks; the world has {}", request.ranks, world.size()));
  }
  const auto group = make_group(world);
  OwnBackend backend(group, request);
  const auto about = fmt::format("lockstep {} {}: {}", kVersion, group->kind(), group->reason());
  std::vector<CommAnswer> answers;
  for (int round = 0; round < rounds; ++round) {
    answers.push_back(measure(backend, request, about));
    answers.back().name = group->kind();
  }
  return answers;
}

}  // namespace lockstep::cli
