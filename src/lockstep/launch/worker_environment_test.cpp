#include "lockstep/launch/worker_environment.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const WorkerIdentity kIdentity{
    .rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .node = 1, .num_nodes = 2};

TEST(WorkerEnvironment, HasTheVariablesThatTorchrunSets) {
  const auto environment = worker_environment({}, {.identity = kIdentity,
                                                   .master_address = "10.0.0.1",
                                                   .master_port = 4711,
                                                   .run_id = "job",
                                                   .restarts = 2,
                                                   .max_restarts = 3,
                                                   .threads = 6});
  const std::vector<std::string> expected{"GROUP_RANK=1",
                                          "GROUP_WORLD_SIZE=2",
                                          "LOCAL_RANK=1",
                                          "LOCAL_WORLD_SIZE=4",
                                          "MALLOC_MMAP_MAX_=0",
                                          "MALLOC_TRIM_THRESHOLD_=9223372036854775807",
                                          "MASTER_ADDR=10.0.0.1",
                                          "MASTER_PORT=4711",
                                          "MIMALLOC_PURGE_DELAY=-1",
                                          "OMP_NUM_THREADS=6",
                                          "RANK=5",
                                          "ROLE_NAME=default",
                                          "ROLE_RANK=5",
                                          "ROLE_WORLD_SIZE=8",
                                          "TORCHELASTIC_MAX_RESTARTS=3",
                                          "TORCHELASTIC_RESTART_COUNT=2",
                                          "TORCHELASTIC_RUN_ID=job",
                                          "TORCHELASTIC_USE_AGENT_STORE=False",
                                          "WORLD_SIZE=8"};
  EXPECT_EQ(environment.lines(), expected);
}

TEST(WorkerEnvironment, KeepsTheUsersVariablesAndReplacesAnOldRank) {
  const auto environment =
      worker_environment({{"HOME", "/root"}, {"RANK", "77"}}, {.identity = kIdentity});
  EXPECT_EQ(environment.find("HOME"), "/root");
  EXPECT_EQ(environment.find("RANK"), "5");
}

TEST(WorkerEnvironment, TheUsersNumberOfThreadsIsKept) {
  const auto environment =
      worker_environment({{"OMP_NUM_THREADS", "13"}}, {.identity = kIdentity, .threads = 2});
  EXPECT_EQ(environment.find("OMP_NUM_THREADS"), "13");
}

TEST(WorkerEnvironment, TheUsersAllocatorSettingsAreKept) {
  const auto environment =
      worker_environment({{"MALLOC_TRIM_THRESHOLD_", "1000000"}}, {.identity = kIdentity});
  EXPECT_EQ(environment.find("MALLOC_TRIM_THRESHOLD_"), "1000000");
}

TEST(WorkerEnvironment, ExtraVariablesComeLast) {
  const auto environment =
      worker_environment({{"LOCKSTEP_RUN_DIR", "old"}},
                         {.identity = kIdentity, .extra = {{"LOCKSTEP_RUN_DIR", "/runs/a"}}});
  EXPECT_EQ(environment.find("LOCKSTEP_RUN_DIR"), "/runs/a");
}

TEST(WorkerEnvironment, AnInvalidIdentityIsRefused) {
  auto identity = kIdentity;
  identity.rank = 8;
  EXPECT_THROW((void)worker_environment({}, {.identity = identity}), UsageError);
  identity = kIdentity;
  identity.local_rank = 4;
  EXPECT_THROW((void)worker_environment({}, {.identity = identity}), UsageError);
}

}  // namespace
}  // namespace lockstep
