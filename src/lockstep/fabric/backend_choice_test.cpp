#include "lockstep/fabric/backend_choice.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(ChooseBackend, SelectsSharedMemoryOnOneHostAndStatesTheReason) {
  const auto choice = choose_backend({{0, 1, 2}, {0, 0, 0}, {"a", "a", "a"}});
  EXPECT_EQ(choice.kind, BackendKind::shm);
  EXPECT_EQ(choice.reason, "all 3 ranks are on one host");
  EXPECT_EQ(choose_backend({{7}, {2}, {"b"}}).reason, "the group has one rank");
  EXPECT_EQ(choose_backend({{0, 1}, {0, 0}, {"a", "a"}}, {.backend = BackendKind::shm}).reason,
            "requested");
}

TEST(ChooseBackend, SelectsHierarchicalForSeveralHostsOfSeveralRanksAndOnRequest) {
  const auto choice = choose_backend({{0, 1, 4}, {0, 0, 1}, {"10.0.0.1", "10.0.0.1", "10.0.0.2"}});
  EXPECT_EQ(choice.kind, BackendKind::hierarchical);
  EXPECT_EQ(choice.reason, "the 3 ranks are on 2 hosts");
  const auto requested =
      choose_backend({{0, 1}, {0, 0}, {"a", "a"}}, {.backend = BackendKind::hierarchical});
  EXPECT_EQ(requested.kind, BackendKind::hierarchical);
  EXPECT_EQ(requested.reason, "requested");
}

TEST(ChooseBackend, StatesTheBytesOfHostsThatFillNoAlignedPowerOfTwo) {
  const auto reason_of = [](const std::vector<int>& hosts) {
    Topology topology;
    topology.hosts = hosts;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      topology.global_ranks.push_back(static_cast<int>(rank));
      topology.addresses.emplace_back("a");
    }
    return choose_backend(topology).reason;
  };
  EXPECT_EQ(reason_of({0, 0, 0, 1, 1, 1}),
            "the 6 ranks are on 2 hosts; a host of 3 ranks sends 1.5× the bytes: equal hosts of "
            "2, 4 or 8 send least");
  EXPECT_EQ(reason_of({0, 1, 1, 2}),
            "the 4 ranks are on 3 hosts; a host of 2 ranks sends 1.5× the bytes: equal hosts of "
            "2, 4 or 8 send least");
  EXPECT_EQ(reason_of({0, 0, 1, 1}), "the 4 ranks are on 2 hosts");
}

TEST(ChooseBackend, SelectsTcpForHostsOfOneRankEachAndOnRequest) {
  const auto choice = choose_backend({{0, 4}, {0, 1}, {"10.0.0.1", "10.0.0.2"}});
  EXPECT_EQ(choice.kind, BackendKind::tcp);
  EXPECT_EQ(choice.reason, "the 2 ranks are on 2 hosts, one on each");
  const auto requested =
      choose_backend({{0, 1}, {0, 0}, {"a", "a"}}, {.backend = BackendKind::tcp});
  EXPECT_EQ(requested.kind, BackendKind::tcp);
  EXPECT_EQ(requested.reason, "requested");
}

TEST(ChooseBackend, SelectsMpiForSeveralHostsOfAnMpiCommunicatorAndOnRequest) {
  Topology topology{{0, 1}, {0, 1}, {"10.0.0.1", "10.0.0.2"}};
  topology.has_mpi = true;
  const auto choice = choose_backend(topology);
  EXPECT_EQ(choice.kind, BackendKind::mpi);
  EXPECT_EQ(choice.reason, "the 2 ranks are on 2 hosts and have an MPI communicator");
  EXPECT_FALSE(choice.shares_memory);
  EXPECT_EQ(choose_backend(topology, {.backend = BackendKind::tcp}).kind, BackendKind::tcp);
  topology.hosts = {0, 0};
  EXPECT_EQ(choose_backend(topology).kind, BackendKind::shm);
  const auto requested = choose_backend(topology, {.backend = BackendKind::mpi});
  EXPECT_EQ(requested.kind, BackendKind::mpi);
  EXPECT_EQ(requested.reason, "requested");
  EXPECT_FALSE(requested.shares_memory);
}

TEST(ChooseBackend, SharesMemoryInsideHostsOfSeveralRanksExceptWithTcp) {
  Topology topology{{0, 1, 4}, {0, 0, 1}, {"10.0.0.1", "10.0.0.1", "10.0.0.2"}};
  EXPECT_TRUE(choose_backend(topology).shares_memory);
  EXPECT_FALSE(choose_backend(topology, {.backend = BackendKind::tcp}).shares_memory);
  topology.has_mpi = true;
  const auto choice = choose_backend(topology);
  EXPECT_TRUE(choice.shares_memory);
  EXPECT_EQ(choice.reason,
            "the 3 ranks are on 2 hosts and have an MPI communicator; the ranks of one host share "
            "memory");
  const auto requested = choose_backend(topology, {.backend = BackendKind::mpi});
  EXPECT_TRUE(requested.shares_memory);
  EXPECT_EQ(requested.reason, "requested; the ranks of one host share memory");
}

TEST(ChooseBackend, NamesTheHostsThatSharedMemoryDoesNotConnect) {
  try {
    (void)choose_backend({{0, 1, 4}, {0, 0, 1}, {"10.0.0.1", "10.0.0.1", "10.0.0.2"}},
                         {.backend = BackendKind::shm});
    FAIL() << "two hosts";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the 3 ranks are on 2 hosts"), std::string::npos) << text;
    EXPECT_NE(text.find("at 10.0.0.1"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 4 at 10.0.0.2"), std::string::npos) << text;
  }
}

// A subgroup of a group on several hosts can be on one of them.
TEST(ChooseBackend, DependsOnlyOnTheRanksOfTheGroup) {
  EXPECT_EQ(choose_backend({{4, 5}, {1, 1}, {"10.0.0.2", "10.0.0.2"}}).kind, BackendKind::shm);
}

// The GPUs of ranks 0, 1, …: the same number is the same GPU.
DeviceTopology gpus(const std::vector<std::uint8_t>& numbers, bool maps_memory = true,
                    bool has_nccl = true) {
  DeviceTopology topology;
  for (const auto number : numbers) {
    topology.global_ranks.push_back(static_cast<int>(topology.global_ranks.size()));
    topology.devices.push_back(
        {.uuid = {number}, .maps_memory = maps_memory, .has_nccl = has_nccl});
  }
  return topology;
}

TEST(ChooseDeviceBackend, DependsOnWhichGpusTheRanksShare) {
  EXPECT_EQ(choose_device_backend(gpus({1, 2, 3})).kind, BackendKind::nccl);
  EXPECT_EQ(choose_device_backend(gpus({1, 2, 3}, true, false)).kind, BackendKind::staged);
  EXPECT_EQ(choose_device_backend(gpus({1, 1, 1})).kind, BackendKind::ipc);
  EXPECT_EQ(choose_device_backend(gpus({1, 1, 1})).reason,
            "all 3 ranks use one GPU, in turns unless MPS runs");
  EXPECT_EQ(choose_device_backend(gpus({1, 1}, false)).kind, BackendKind::staged);
  EXPECT_EQ(choose_device_backend(gpus({1, 2, 1})).kind, BackendKind::staged);
  EXPECT_EQ(choose_device_backend(gpus({1, 2, 1})).reason,
            "ranks 0 and 2 use the same GPU, others use other GPUs");
}

TEST(ChooseDeviceBackend, ARequestIsFulfilledOrRefusedWithTheReason) {
  const auto refusal = [](const DeviceTopology& topology, BackendKind kind) -> std::string {
    try {
      EXPECT_EQ(choose_device_backend(topology, {.backend = kind}).reason, "requested");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(gpus({1, 1}), BackendKind::ipc), "");
  EXPECT_EQ(refusal(gpus({1, 1}), BackendKind::staged), "");
  EXPECT_EQ(refusal(gpus({1, 2}), BackendKind::nccl), "");
  EXPECT_EQ(refusal(gpus({1}), BackendKind::nccl), "");
  EXPECT_NE(refusal(gpus({1, 2, 1}), BackendKind::nccl).find("ranks 0 and 2 use the same GPU"),
            std::string::npos);
  EXPECT_NE(refusal(gpus({1, 2}, true, false), BackendKind::nccl).find("rank 0 has no NCCL"),
            std::string::npos);
  EXPECT_NE(refusal(gpus({1, 2}), BackendKind::ipc).find("different GPUs"), std::string::npos);
  EXPECT_NE(refusal(gpus({1, 1}, false), BackendKind::ipc).find("refuses CUDA IPC"),
            std::string::npos);
  EXPECT_NE(refusal(gpus({1, 1}), BackendKind::shm).find("does not support GPU memory"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
