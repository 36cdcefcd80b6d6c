#include "lockstep/mpi/init.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/foreign.h"
#include "lockstep/launch/profile.h"
#include "lockstep/mpi/network_internal.h"
#include "lockstep/net/handshake.h"
#include "lockstep/rendezvous/group_registry.h"

namespace lockstep {
namespace {

void expect_usable(MPI_Comm communicator) {
  int is_initialised = 0;
  int is_finalised = 0;
  MPI_Initialized(&is_initialised);
  MPI_Finalized(&is_finalised);
  if (is_initialised == 0 || is_finalised != 0) {
    throw UsageError("init(MPI_Comm) needs an MPI that is initialised: call MPI_Init_thread first");
  }
  int has_two_groups = 0;
  if (communicator != MPI_COMM_NULL) MPI_Comm_test_inter(communicator, &has_two_groups);
  if (communicator == MPI_COMM_NULL || has_two_groups != 0) {
    throw UsageError(
        "init(MPI_Comm) needs an intracommunicator, not MPI_COMM_NULL or one between "
        "two groups");
  }
}

// Two worlds of one mpirun have different names.
std::string agree_on_name(MPI_Comm communicator) {
  auto nonce = fresh_nonce();
  MPI_Bcast(nonce.data(), static_cast<int>(nonce.size()), MPI_BYTE, 0, communicator);
  std::string name = "mpi-";
  for (const auto byte : std::span(nonce).first(8)) {
    name += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return name;
}

Placement placement_in(MPI_Comm communicator, const Environment& environment) {
  Placement placement;
  const auto launcher = find_placement(environment);
  placement.source = launcher.source;
  placement.run_dir = launcher.run_dir;
  placement.round = launcher.round;
  placement.master = launcher.master;
  placement.job = agree_on_name(communicator);
  MPI_Comm_rank(communicator, &placement.rank);
  MPI_Comm_size(communicator, &placement.size);
  MPI_Comm of_node = MPI_COMM_NULL;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, placement.rank, MPI_INFO_NULL, &of_node);
  MPI_Comm_rank(of_node, &placement.local_rank.emplace());
  MPI_Comm_size(of_node, &placement.local_size.emplace());
  MPI_Comm_free(&of_node);
  return placement;
}

// Those of this host; nullopt for the others.
std::vector<std::optional<ProcessIdentity>> processes_of(const World& world,
                                                         MPI_Comm communicator) {
  const auto own = ProcessIdentity::of(::getpid());
  const std::array<std::int64_t, 2> sent{own.process, own.started};
  std::vector<std::int64_t> received(2 * static_cast<std::size_t>(world.size()));
  MPI_Allgather(sent.data(), 2, MPI_INT64_T, received.data(), 2, MPI_INT64_T, communicator);
  std::vector<std::optional<ProcessIdentity>> processes(static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.same_host(rank, world.rank())) continue;
    const auto index = static_cast<std::size_t>(rank);
    processes[index] = {static_cast<pid_t>(received[2 * index]), received[2 * index + 1]};
  }
  return processes;
}

// Open MPI writes to the socket of a rank that has died. Without a handler of the program, SIGPIPE
// would end this rank before it has named that one.
void survive_closed_sockets() {
  struct sigaction now = {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace

World init(MPI_Comm communicator, std::chrono::seconds timeout) {
  expect_usable(communicator);
  survive_closed_sockets();
  const auto environment = Environment::of_process();
  const auto deadline = Deadline::after(timeout);
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(communicator, &own);
  const auto placement = placement_in(own, environment);
  auto world = meet_under_foreign_launcher(placement, environment, deadline);
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  const bool has_thread = level >= MPI_THREAD_SERIALIZED;
  if (!has_thread && world.rank() == 0) {
    Log({.rank = 0})
        .warning(
            "MPI provides less than MPI_THREAD_SERIALIZED: data of backend mpi move only inside "
            "calls "
            "of lockstep; request that level with MPI_Init_thread");
  }
  world.groups()->given_network() =
      std::static_pointer_cast<void>(std::static_pointer_cast<Network>(
          std::make_shared<MpiNetwork>(own, processes_of(world, own), *world.groups(),
                                       has_thread ? MpiProgress::thread : MpiProgress::callers)));
  profile_if_requested(world, environment, deadline);
  return world;
}

}  // namespace lockstep
