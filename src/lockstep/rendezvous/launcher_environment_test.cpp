#include "lockstep/rendezvous/launcher_environment.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/net/handshake.h"

namespace lockstep {
namespace {

using Variables = std::initializer_list<std::pair<const std::string, std::string>>;

// The variables that each launcher sets for one rank, captured from real runs.
Environment torchrun() {
  return {{"RANK", "3"},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", "3"},
          {"ROLE_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "h0"},
          {"MASTER_PORT", "29500"},
          {"OMP_NUM_THREADS", "1"},
          {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", "2"},
          {"TORCHELASTIC_MAX_RESTARTS", "3"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

Environment srun() {
  return {{"SLURM_PROCID", "3"},         {"SLURM_NTASKS", "4"},
          {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},         {"SLURM_NNODES", "2"},
          {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_NODELIST", "h[0-1]"},
          {"SLURM_NODELIST", "h[0-1]"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_JOB_ID", "12345"},     {"SLURM_STEP_ID", "0"},
          {"SLURM_JOB_NAME", "train"},   {"SLURM_LAUNCH_NODE_IPADDR", "10.77.0.1"}};
}

// One task per node, as for torchrun or for the daemons of mpirun.
Environment srun_one_a_node() {
  auto environment = srun();
  for (const auto& [name, value] : Variables{{"SLURM_PROCID", "1"},
                                             {"SLURM_NTASKS", "2"},
                                             {"SLURM_STEP_NUM_TASKS", "2"},
                                             {"SLURM_LOCALID", "0"},
                                             {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}}) {
    environment.set(name, value);
  }
  return environment;
}

Environment mpirun() {
  return {{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"},
          {"OMPI_UNIVERSE_SIZE", "6"},
          {"PMIX_NAMESPACE", "2914385921"},
          {"PMIX_RANK", "3"},
          {"PMIX_HOSTNAME", "h1"}};
}

Environment mpich() {
  return {{"PMI_RANK", "1"},
          {"PMI_SIZE", "2"},
          {"MPI_LOCALRANKID", "1"},
          {"MPI_LOCALNRANKS", "2"},
          {"PMI_FD", "9"}};
}

Environment kubeflow() {
  return {{"RANK", "1"},
          {"WORLD_SIZE", "3"},
          {"MASTER_ADDR", "job-master-0"},
          {"MASTER_PORT", "23456"},
          {"PET_NNODES", "3"},
          {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
}

Environment joined(Environment environment, const Environment& more) {
  for (const auto& line : more.lines()) {
    const auto equals = line.find('=');
    environment.set(line.substr(0, equals), line.substr(equals + 1));
  }
  return environment;
}

Environment with(Environment environment, std::string_view name, std::string_view value) {
  environment.set(name, value);
  return environment;
}

Environment without(Environment environment, std::string_view name) {
  environment.remove(name);
  return environment;
}

void expect_error(const Environment& environment, std::initializer_list<const char*> all_words) {
  try {
    (void)find_placement(environment);
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    for (const char* words : all_words) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
          << words << " is not in: " << error.what();
    }
  }
}

void expect_numbers(const Placement& got, int rank, int size, std::optional<int> local_rank,
                    std::optional<int> local_size, std::optional<int> node_rank,
                    std::optional<int> num_nodes) {
  EXPECT_EQ(got.rank, rank);
  EXPECT_EQ(got.size, size);
  EXPECT_EQ(got.local_rank, local_rank);
  EXPECT_EQ(got.local_size, local_size);
  EXPECT_EQ(got.node_rank, node_rank);
  EXPECT_EQ(got.num_nodes, num_nodes);
}

TEST(LauncherEnvironment, WithoutALauncherAProcessIsAlone) {
  const auto placement = find_placement({{"HOME", "/root"}, {"LOCKSTEP_RUN_DIR", "runs/a"}});
  expect_numbers(placement, 0, 1, 0, 1, 0, 1);
  EXPECT_EQ(placement.source, PlacementSource::none);
  EXPECT_FALSE(placement.master);
  EXPECT_EQ(placement.run_dir, "runs/a");
}

TEST(LauncherEnvironment, Torchrun) {
  const auto placement = find_placement(torchrun());
  expect_numbers(placement, 3, 4, 1, 2, 1, 2);
  EXPECT_EQ(placement.source, PlacementSource::torchrun);
  EXPECT_EQ(placement.master, (Endpoint{"h0", 29500}));
  EXPECT_EQ(placement.job, "torchrun-none-h0:29500");
  EXPECT_EQ(placement.round, 2u);
  EXPECT_FALSE(placement.run_dir);
}

TEST(LauncherEnvironment, Slurm) {
  const auto placement = find_placement(srun());
  expect_numbers(placement, 3, 4, 1, 2, 1, 2);
  EXPECT_EQ(placement.source, PlacementSource::slurm);
  EXPECT_EQ(placement.master, (Endpoint{"h0", 15000 + 2345}));
  EXPECT_EQ(placement.job, "slurm-12345.0");
  const auto named = with(with(srun(), "MASTER_ADDR", "10.1.1.1"), "MASTER_PORT", "4000");
  EXPECT_EQ(find_placement(named).master, (Endpoint{"10.1.1.1", 4000}));
}

TEST(LauncherEnvironment, SlurmsNodesMayHaveDifferentNumbersOfTasks) {
  auto environment = with(srun(), "SLURM_STEP_TASKS_PER_NODE", "3,1");
  environment.set("SLURM_LOCALID", "0");
  expect_numbers(find_placement(environment), 3, 4, 0, 1, 1, 2);
}

TEST(LauncherEnvironment, AShellOrScriptInsideSlurmIsNoStep) {
  for (const auto& environment :
       {without(srun(), "SLURM_STEP_ID"), with(srun(), "SLURM_STEP_ID", "4294967291"),
        with(srun(), "SLURM_STEP_ID", "extern"), with(srun(), "SLURM_STEP_ID", "batch"),
        with(srun(), "SLURM_JOB_NAME", "bash"), with(srun(), "SLURM_JOB_NAME", "interactive")}) {
    EXPECT_EQ(find_placement(environment).source, PlacementSource::none);
  }
}

TEST(LauncherEnvironment, OpenMpiDoesNotGiveTheNode) {
  const auto placement = find_placement(mpirun());
  expect_numbers(placement, 3, 4, 1, 2, {}, {});
  EXPECT_EQ(placement.source, PlacementSource::open_mpi);
  EXPECT_EQ(placement.job, "open_mpi-2914385921");
  const auto one_node =
      with(with(mpirun(), "OMPI_COMM_WORLD_LOCAL_SIZE", "4"), "OMPI_COMM_WORLD_LOCAL_RANK", "3");
  expect_numbers(find_placement(one_node), 3, 4, 3, 4, 0, 1);
}

TEST(LauncherEnvironment, Mpich) {
  const auto placement = find_placement(mpich());
  expect_numbers(placement, 1, 2, 1, 2, 0, 1);
  EXPECT_EQ(placement.source, PlacementSource::mpich);
}

TEST(LauncherEnvironment, KubernetesAndIndexedJobs) {
  const auto placement = find_placement(kubeflow());
  expect_numbers(placement, 1, 3, {}, {}, {}, {});
  EXPECT_EQ(placement.source, PlacementSource::plain);
  EXPECT_EQ(placement.master, (Endpoint{"job-master-0", 23456}));
  const auto indexed = with(without(kubeflow(), "RANK"), "JOB_COMPLETION_INDEX", "2");
  EXPECT_EQ(find_placement(indexed).rank, 2);
  EXPECT_EQ(find_placement({{"JOB_COMPLETION_INDEX", "2"}}).source, PlacementSource::none);
}

TEST(LauncherEnvironment, LockstepsOwnVariablesWinOverEveryOuterLauncher) {
  auto environment = joined(joined(torchrun(), srun()), mpirun());
  environment.set("LOCKSTEP_STORE", "127.0.0.1:4711");
  environment.set("LOCKSTEP_JOB", "a1b2");
  environment.set("LOCKSTEP_ROUND", "5");
  environment.set("RANK", "0");
  environment.set("LOCAL_RANK", "0");
  environment.set("GROUP_RANK", "0");
  const auto placement = find_placement(environment);
  expect_numbers(placement, 0, 4, 0, 2, 0, 2);
  EXPECT_EQ(placement.source, PlacementSource::lockstep);
  EXPECT_EQ(placement.job, "a1b2");
  EXPECT_EQ(placement.round, 5u);
  expect_error({{"LOCKSTEP_STORE", "127.0.0.1:4711"}}, {"lockstep run", "RANK is not"});
}

TEST(LauncherEnvironment, LaunchersThatAgreeAreFine) {
  EXPECT_EQ(find_placement(joined(srun(), mpirun())).source, PlacementSource::slurm);
  auto by_hand = with(with(srun(), "RANK", "3"), "WORLD_SIZE", "4");
  EXPECT_EQ(find_placement(by_hand).source, PlacementSource::slurm);
  auto pmi = with(with(srun(), "PMI_RANK", "3"), "PMI_SIZE", "4");  // srun --mpi=pmi2
  EXPECT_EQ(find_placement(pmi).source, PlacementSource::slurm);
}

TEST(LauncherEnvironment, AnOuterLauncherOfOneProcessPerNodeIsCompatibleWithTheInnerOne) {
  const auto inner_torchrun = find_placement(joined(srun_one_a_node(), torchrun()));
  EXPECT_EQ(inner_torchrun.source, PlacementSource::torchrun);
  EXPECT_EQ(inner_torchrun.rank, 3);
  const auto inner_mpirun = find_placement(joined(srun_one_a_node(), mpirun()));
  EXPECT_EQ(inner_mpirun.source, PlacementSource::open_mpi);
  EXPECT_EQ(inner_mpirun.rank, 3);
  auto mpirun_one_a_node = mpirun();
  for (const auto& [name, value] : Variables{{"OMPI_COMM_WORLD_RANK", "1"},
                                             {"OMPI_COMM_WORLD_SIZE", "2"},
                                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                             {"PMIX_RANK", "1"}}) {
    mpirun_one_a_node.set(name, value);
  }
  EXPECT_EQ(find_placement(joined(mpirun_one_a_node, torchrun())).source,
            PlacementSource::torchrun);
}

TEST(LauncherEnvironment, TwoLaunchersThatDifferAreNamedWithTheirValues) {
  expect_error(joined(srun(), with(torchrun(), "RANK", "2")),
               {"torchrun says RANK=2 and WORLD_SIZE=4",
                "srun (SLURM) says SLURM_PROCID=3 and SLURM_STEP_NUM_TASKS=4", "unset"});
  expect_error(joined(srun(), with(with(mpirun(), "OMPI_COMM_WORLD_RANK", "2"), "PMIX_RANK", "2")),
               {"SLURM_PROCID=3", "mpirun (Open MPI) says OMPI_COMM_WORLD_RANK=2"});
  expect_error(joined(srun(), kubeflow()),
               {"SLURM_PROCID=3", "RANK and WORLD_SIZE says RANK=1 and WORLD_SIZE=3"});
  expect_error(joined(mpirun(), mpich()),
               {"OMPI_COMM_WORLD_RANK=3", "mpiexec (MPICH) says PMI_RANK=1 and PMI_SIZE=2"});
  expect_error(joined(mpirun(), kubeflow()), {"OMPI_COMM_WORLD_SIZE=4", "WORLD_SIZE=3"});
  // Two runs of one node each under a step of two nodes.
  auto standalone = with(with(torchrun(), "GROUP_RANK", "0"), "GROUP_WORLD_SIZE", "1");
  expect_error(joined(srun_one_a_node(), standalone), {"RANK=3", "SLURM_PROCID=1"});
  auto other_local = with(with(srun(), "RANK", "3"), "WORLD_SIZE", "4");
  expect_error(with(other_local, "LOCAL_RANK", "0"), {"SLURM_LOCALID=1", "LOCAL_RANK=0"});
}

TEST(LauncherEnvironment, InvalidNumbersAreNamed) {
  expect_error(with(torchrun(), "RANK", "4"), {"RANK=4 contradicts WORLD_SIZE=4", "0 to 3"});
  expect_error(with(torchrun(), "LOCAL_RANK", "2"), {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"});
  expect_error(with(torchrun(), "GROUP_RANK", "7"), {"GROUP_RANK=7", "GROUP_WORLD_SIZE=2"});
  expect_error(with(torchrun(), "LOCAL_WORLD_SIZE", "5"), {"LOCAL_WORLD_SIZE=5", "WORLD_SIZE=4"});
  expect_error(with(torchrun(), "WORLD_SIZE", "0"), {"WORLD_SIZE=0"});
  expect_error(with(torchrun(), "RANK", "-1"), {"RANK=-1"});
  expect_error(with(torchrun(), "RANK", "x"), {"RANK", "\"x\""});
  expect_error(without(torchrun(), "WORLD_SIZE"), {"torchrun", "WORLD_SIZE is not"});
  expect_error(without(torchrun(), "MASTER_PORT"), {"MASTER_ADDR is set, but MASTER_PORT is not"});
  expect_error(with(torchrun(), "MASTER_PORT", "70000"), {"MASTER_PORT=70000"});
  expect_error(without(kubeflow(), "WORLD_SIZE"), {"WORLD_SIZE is not"});
  expect_error(with(srun(), "SLURM_STEP_NODELIST", "h[0-2]"),
               {"SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=h[0-2], which has 3"});
  expect_error(with(srun(), "SLURM_STEP_TASKS_PER_NODE", "4"),
               {"SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=4"});
  expect_error(with(srun(), "SLURM_LOCALID", "2"),
               {"SLURM_LOCALID=2", "SLURM_STEP_TASKS_PER_NODE=2"});
  expect_error(with(mpirun(), "PMIX_RANK", "0"), {"OMPI_COMM_WORLD_RANK=3", "PMIX_RANK=0"});
}

TEST(LauncherEnvironment, ALongJobNameIsCutButStaysUnique) {
  const auto job = [](char last) {
    return find_placement(with(torchrun(), "TORCHELASTIC_RUN_ID", std::string(100, 'x') + last))
        .job;
  };
  EXPECT_EQ(job('a').size(), kMaxJobBytes);
  EXPECT_NE(job('a'), job('b'));
}

}  // namespace
}  // namespace lockstep
