// lockstep-bench-mpi REQUEST ANSWER, started by mpirun: the peer of `lockstep bench comm --compare
// mpi`. Each rank pins itself to the processors of lockstep's rank before MPI_Init reads them.
#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>

#include <iostream>
#include <memory>

#include "cli/bench/comm/measure.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int8:
      return MPI_INT8_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::boolean:
    case DType::float16:
    case DType::bfloat16:
      break;  // MPI 3 has no sum of these dtypes
  }
  return MPI_DATATYPE_NULL;
}

class MpiTimed final : public TimedBackend {
 public:
  explicit MpiTimed(std::size_t arena_bytes) : memory_(arena_bytes + kBufferAlignment) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    void* start = memory_.data();
    auto room = memory_.size();
    std::align(kBufferAlignment, arena_bytes, start, room);
    arena_ = {static_cast<std::byte*>(start), arena_bytes};
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] bool can(const CommCase& timed) const override {
    // MPI has no reduction that leaves each shard at its place.
    return timed.op != Collective::reduce_to_owners && timed.memory == MemoryKind::ordinary &&
           type_of(timed.dtype) != MPI_DATATYPE_NULL;
  }
  [[nodiscard]] std::span<std::byte> arena(MemoryKind) override { return arena_; }

  void call(const CommCase& timed, const CallMemory& memory) override {
    const auto call = call_of(timed, size_);
    const auto type = type_of(timed.dtype);
    const auto count = static_cast<int>(call.count);
    void* in = memory.input.data();
    void* out = memory.output.data();
    const auto world = MPI_COMM_WORLD;
    switch (timed.op) {
      case Collective::all_reduce:
        MPI_Allreduce(MPI_IN_PLACE, out, count, type, MPI_SUM, world);
        break;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(in, out, count, type, MPI_SUM, world);
        break;
      case Collective::all_gather:
        MPI_Allgather(in, count, type, out, count, type, world);
        break;
      case Collective::broadcast:
        MPI_Bcast(rank_ == 0 ? in : out, count, type, 0, world);
        break;
      case Collective::reduce:
        MPI_Reduce(rank_ == 0 ? MPI_IN_PLACE : in, out, count, type, MPI_SUM, 0, world);
        break;
      case Collective::gather:
        MPI_Gather(in, count, type, out, count, type, 0, world);
        break;
      case Collective::scatter:
        MPI_Scatter(in, count, type, out, count, type, 0, world);
        break;
      case Collective::all_to_all:
        MPI_Alltoall(in, count, type, out, count, type, world);
        break;
      case Collective::gather_from_owners:
        MPI_Allgather(MPI_IN_PLACE, 0, type, out, count / size_, type, world);
        break;
      case Collective::reduce_to_owners:
      case Collective::barrier:
      case Collective::allocate:
      case Collective::split:
        break;  // not timed
    }
  }

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  void max_over_ranks(std::span<double> values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::byte> memory_;
  std::span<std::byte> arena_;  // the aligned part of memory_
};

void pin_to_processors(const CommRequest& request) {
  const auto rank = Environment::of_process().find_integer("OMPI_COMM_WORLD_RANK").value_or(-1);
  if (rank < 0 || static_cast<std::size_t>(rank) >= request.processors.size()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : request.processors[static_cast<std::size_t>(rank)]) {
    CPU_SET(static_cast<std::size_t>(processor), &set);
  }
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    throw SystemError(fmt::format("cannot pin rank {}", rank), errno);
  }
}

std::string library_version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  return text.substr(0, text.find(','));
}

int run(const std::string& request_path, const std::string& answer_path) {
  const auto request = read_request(request_path);
  pin_to_processors(request);
  MPI_Init(nullptr, nullptr);
  {
    MpiTimed backend(request.arena_bytes);
    const auto answer = measure(backend, request, library_version());
    if (backend.rank() == 0) write_answer(answer, answer_path);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "lockstep-bench-mpi: started only by `lockstep bench comm --compare mpi`\n";
    return 2;
  }
  try {
    return lockstep::cli::run(argv[1], argv[2]);
  } catch (const lockstep::Error& error) {
    std::cerr << "lockstep-bench-mpi: " << error.what() << '\n';
    return 1;
  }
}
