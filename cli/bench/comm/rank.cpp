// One rank of lockstep's own backend under `lockstep bench comm`.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>

#include "cli/bench/comm/comm.h"
#include "cli/bench/comm/measure.h"
#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/collectives/backends.h"
#include "lockstep/fabric/group.h"
#include "lockstep/launch/init.h"

namespace lockstep::cli {
namespace {

class OwnBackend final : public TimedBackend {
 public:
  OwnBackend(std::shared_ptr<Group> group, const CommRequest& request)
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

  [[nodiscard]] int rank() const override { return group_->rank(); }
  [[nodiscard]] bool can(const CommCase&) const override { return true; }
  [[nodiscard]] std::span<std::byte> arena(MemoryKind memory) override {
    return memory == MemoryKind::registered ? registered_->bytes() : ordinary_arena_;
  }

  void call(const CommCase& timed, const CallMemory& memory) override {
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

  void barrier() override { group_->wait(*group_->start({.name = "bench"}, nullptr)); }

  void max_over_ranks(std::span<double> values) override {
    group_->wait(*group_->start({.kind = Collective::all_reduce,
                                 .dtype = DType::float64,
                                 .op = ReduceOp::max,
                                 .count = static_cast<std::int64_t>(values.size()),
                                 .name = "times",
                                 .input = std::as_bytes(values),
                                 .output = std::as_writable_bytes(values)},
                                nullptr));
  }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<RegisteredMemory> registered_;
  std::vector<std::byte> ordinary_;
  std::span<std::byte> ordinary_arena_;  // the aligned part of ordinary_
  // Of the last case with owners: made once, because a call may take less than a microsecond.
  std::optional<Owners> owners_;
  CommCase owned_case_;
};

}  // namespace

int run_bench_comm_rank(const std::vector<std::string>& arguments, Streams streams) {
  try {
    if (arguments.size() != 2) {
      throw UsageError("`bench comm-rank` is started only by `lockstep bench comm`; use that");
    }
    const auto request = read_request(arguments[0]);
    const auto world = init();
    if (world.size() != request.ranks) {
      throw UsageError(fmt::format("the request is for {} ranks; the world has {}", request.ranks,
                                   world.size()));
    }
    const auto group = make_group(world);
    OwnBackend backend(group, request);
    const auto answer =
        measure(backend, request,
                fmt::format("lockstep {} {}: {}", kVersion, group->kind(), group->reason()));
    if (world.rank() == 0) write_answer(answer, arguments[1]);
    return kSuccess;
  } catch (const Error& error) {
    streams.error << "lockstep bench comm: " << error.what() << '\n';
    return kFailure;
  }
}

}  // namespace lockstep::cli
