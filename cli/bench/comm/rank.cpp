// One rank of our own engine under `lockstep bench comm`.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>

#include "cli/bench/comm/comm.h"
#include "cli/bench/comm/measure.h"
#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/fabric/shm_engine.h"
#include "lockstep/launch/init.h"

namespace lockstep::cli {
namespace {

class ShmTimed final : public TimedEngine {
 public:
  ShmTimed(std::shared_ptr<Engine> engine, const CommRequest& request)
      : engine_(std::move(engine)), ordinary_(request.arena_bytes + kBufferAlignment) {
    const auto uses_library = [](const CommCase& timed) {
      return timed.memory == MemoryKind::library;
    };
    if (std::ranges::any_of(request.cases, uses_library)) {
      library_ = engine_->allocate(request.arena_bytes);
    }
    void* start = ordinary_.data();
    auto room = ordinary_.size();
    std::align(kBufferAlignment, request.arena_bytes, start, room);
    ordinary_arena_ = {static_cast<std::byte*>(start), request.arena_bytes};
  }

  [[nodiscard]] int rank() const override { return engine_->rank(); }
  [[nodiscard]] bool can(const CommCase&) const override { return true; }
  [[nodiscard]] std::span<std::byte> arena(MemoryKind memory) override {
    return memory == MemoryKind::library ? library_->bytes() : ordinary_arena_;
  }

  void call(const CommCase& timed, const CallMemory& memory) override {
    auto call = call_of(timed, engine_->size());
    call.input = memory.input;
    call.output = memory.output;
    engine_->wait(*engine_->start(call, nullptr));
  }

  void barrier() override { engine_->wait(*engine_->start({.name = "bench"}, nullptr)); }

  void max_over_ranks(std::span<double> values) override {
    engine_->wait(*engine_->start({.kind = Collective::all_reduce,
                                   .dtype = DType::float64,
                                   .op = ReduceOp::max,
                                   .count = static_cast<std::int64_t>(values.size()),
                                   .name = "times",
                                   .input = std::as_bytes(values),
                                   .output = std::as_writable_bytes(values)},
                                  nullptr));
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<LibraryMemory> library_;
  std::vector<std::byte> ordinary_;
  std::span<std::byte> ordinary_arena_;  // the aligned part of ordinary_
};

}  // namespace

int run_bench_comm_rank(const std::vector<std::string>& arguments, Streams streams) {
  try {
    if (arguments.size() != 2) {
      throw UsageError("`bench comm-rank` is what `lockstep bench comm` starts: use that");
    }
    const auto request = read_request(arguments[0]);
    const auto world = init();
    if (world.size() != request.ranks) {
      throw UsageError(
          fmt::format("the request is for {} ranks, not {}", request.ranks, world.size()));
    }
    ShmTimed engine(make_shm_engine(world), request);
    const auto answer = measure(engine, request, fmt::format("lockstep {} shm", kVersion));
    if (world.rank() == 0) write_answer(answer, arguments[1]);
    return kSuccess;
  } catch (const Error& error) {
    streams.error << "lockstep bench comm: " << error.what() << '\n';
    return kFailure;
  }
}

}  // namespace lockstep::cli
