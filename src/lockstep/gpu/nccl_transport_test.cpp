// The transport nccl on doubles of NCCL and of the devices: results, shutdown, failures. The suites
// of fabric/ run over it too.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/gpu/nccl_ratio_internal.h"
#include "lockstep/gpu/nccl_transport_internal.h"
#include "lockstep/gpu/test_cards_internal.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

TEST(NcclPieces, CoverTheReductionInAlignedShards) {
  for (const std::size_t ranks : {1U, 2U, 3U, 8U}) {
    for (const std::size_t count : {1U, 63U, 64U, 65U, 1000U, 4096U, 100'003U}) {
      const std::size_t largest = 64 * ranks * 5;
      std::size_t next = 0;
      while (next < count) {
        const auto piece = piece_at(next, count, ranks, largest);
        EXPECT_EQ(piece.offset, next);
        EXPECT_TRUE(ranks == 1 || piece.shard % 64 == 0);
        EXPECT_LT(piece.remainder, 64 * ranks);
        EXPECT_LE(piece.shard * ranks + piece.remainder, largest);
        next += piece.shard * ranks + piece.remainder;
      }
      EXPECT_EQ(next, count);
    }
  }
}

class NcclConformance : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclConformance, ::testing::Values(1, 2, 3, 8));

TEST_P(NcclConformance, EveryCollectiveTypeAndOperationGivesTheBitsOfTheOracle) {
  Cards cards({.size = GetParam(), .seed = static_cast<std::uint64_t>(GetParam())});
  cards.run([&](Group& group) {
    const auto device = cards.device(group.rank());
    const auto registered = group.allocate(256U << 10, device);
    std::uint64_t seed = 0;
    for (const auto dtype : kDTypes) {
      for (const auto kind : kDataCollectives) {
        for (const auto op : kReduceOps) {
          if (!reduces(kind) ? op != ReduceOp::sum : !is_valid_reduction(dtype, op)) continue;
          // Nothing, a remainder only, shards and a remainder, several pieces.
          for (const std::int64_t count : {0, 1, 64 * group.size() + 3, 1500}) {
            const Call call{.kind = kind,
                            .dtype = dtype,
                            .op = op,
                            .root = static_cast<int>(++seed) % group.size(),
                            .count = count,
                            .device = device};
            const auto form = seed % 2 == 0 && can_be_in_place(kind) ? Form::in_place : Form::apart;
            const auto memory = seed % 3 == 0 ? registered->bytes() : std::span<std::byte>();
            CheckedCall(group, call, form, memory, seed).wait();
          }
        }
      }
    }
  });
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

TEST_P(NcclConformance, CallsFollowEachOtherWithoutAWaitAndKeepTheOrderOfTheStreams) {
  Cards cards({.size = GetParam(), .seed = 7});
  cards.run([&](Group& group) {
    auto& device = Cards::device_double();
    const auto own = cards.device(group.rank());
    void* stream = nullptr;
    ASSERT_TRUE(device.make_stream(stream).ok());
    std::vector<float> values(700, 0.0F);
    for (int round = 0; round < 20; ++round) {
      // The input exists only once the stream has reached this point, and the next round reads the
      // output on the same stream.
      device.enqueue(stream, nullptr, [&] {
        for (auto& value : values) value += 1.0F;
      });
      auto call = sum_of(values, own);
      call.op = ReduceOp::average;
      call.stream = stream;
      const auto operation = group.start(call, nullptr);
      group.make_wait(*operation, stream);
    }
    ASSERT_TRUE(device.synchronize(stream).ok());
    EXPECT_EQ(values, std::vector<float>(700, 20.0F));
  });
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

TEST_P(NcclConformance, FastReductionsLeaveSumsOfFloatingPointToNccl) {
  Cards cards({.size = GetParam(), .reduction = NcclReduction::fast});
  std::atomic<int> reductions = 0;
  cards.nccl().set_fault([&](std::string_view function) {
    if (function == "all_reduce") ++reductions;
    return DeviceStatus();
  });
  cards.run([&](Group& group) {
    const auto device = cards.device(group.rank());
    const auto size = static_cast<float>(group.size());
    for (const auto op : {ReduceOp::sum, ReduceOp::average, ReduceOp::weighted_average}) {
      // Small integers: their sum is exact in any order.
      std::vector<float> values(1000, static_cast<float>(group.rank() + 1));
      auto call = sum_of(values, device);
      call.op = op;
      if (op == ReduceOp::weighted_average) call.weight = group.rank() == 0 ? 3 : 1;
      group.synchronize(*group.start(call, nullptr));
      const float sum = size * (size + 1) / 2;
      const float divisor = op == ReduceOp::sum ? 1 : op == ReduceOp::average ? size : size + 2;
      EXPECT_EQ(values, std::vector<float>(1000, sum / divisor));
    }
    std::vector<float> values(10, static_cast<float>(group.rank()));
    auto call = sum_of(values, device);
    call.op = ReduceOp::max;  // has one result in any order
    group.synchronize(*group.start(call, nullptr));
    EXPECT_EQ(values, std::vector<float>(10, size - 1));
  });
  EXPECT_EQ(reductions, 3 * GetParam());
}

TEST_P(NcclConformance, GroupsEndInOrder) {
  Cards cards({.size = GetParam()});
  cards.run([&](Group& group) {
    // Kept until the work has ended, which is when the rank leaves the group.
    const auto values = std::make_shared<std::vector<float>>(100, 1.0F);
    (void)group.start(sum_of(*values, cards.device(group.rank())), values);
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
  });
  EXPECT_EQ(cards.nccl().num_destroyed(), GetParam());
  EXPECT_EQ(cards.nccl().num_aborted(), 0);
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

TEST(NcclGroups, ThatShareAGpuAreRefusedBeforeNcclIsCalled) {
  Cards cards({.size = 2, .device_of = [](int) { return 0; }});
  std::atomic<int> connections = 0;
  cards.nccl().set_fault([&](std::string_view function) {
    if (function == "connect") ++connections;
    return DeviceStatus();
  });
  cards.run([&](Group& group) {
    std::vector<float> values(4, 1.0F);
    const auto error =
        error_of([&] { (void)group.start(sum_of(values, cards.device(group.rank())), nullptr); });
    EXPECT_NE(error.find("backend nccl was requested, but"), std::string::npos) << error;
    EXPECT_NE(error.find("request ipc or staged"), std::string::npos) << error;
  });
  EXPECT_EQ(connections, 0);
}

TEST(NcclGroups, WhoseRanksReduceDifferentlyAreRefusedOnAllRanks) {
  Cards cards({.size = 3});
  cards.reduction_of = [](int rank) {
    return rank == 2 ? NcclReduction::fast : NcclReduction::exact;
  };
  cards.run([&](Group& group) {
    std::vector<float> values(4, 1.0F);
    const auto error =
        error_of([&] { (void)group.start(sum_of(values, cards.device(group.rank())), nullptr); });
    EXPECT_NE(error.find("rank 0 has version 22809 and exact reductions, rank 2 has version 22809 "
                         "and fast"),
              std::string::npos)
        << error;
  });
}

TEST(NcclGroups, ThatNcclRefusesAreRefusedOnAllRanksInTheWordsOfNccl) {
  Cards cards({.size = 2});
  cards.nccl().set_fault([&](std::string_view function) {
    const bool refused = function == "make_id";
    return refused ? DeviceStatus::failed("no socket interface found") : DeviceStatus();
  });
  cards.run([&](Group& group) {
    std::vector<float> values(4, 1.0F);
    const auto error =
        error_of([&] { (void)group.start(sum_of(values, cards.device(group.rank())), nullptr); });
    EXPECT_NE(error.find("rank 0 cannot use NCCL"), std::string::npos) << error;
    EXPECT_NE(error.find("no socket interface found"), std::string::npos) << error;
    EXPECT_NE(error.find("NCCL_SOCKET_IFNAME"), std::string::npos) << error;
  });
}

// After a failure of a group, the next one on the same devices works.
void expect_new_group_works(Cards& cards) {
  cards.nccl().set_fault(nullptr);
  cards.nccl().clear_script();
  cards.run([&](Group& group) {
    std::vector<float> values(300, 2.0F);
    group.synchronize(*group.start(sum_of(values, cards.device(group.rank())), nullptr));
    EXPECT_EQ(values, std::vector<float>(300, 2.0F * static_cast<float>(group.size())));
  });
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

TEST(NcclFailures, AnAsynchronousErrorIsThrownByTheNextCallAndTheStreamsDrain) {
  Cards cards({.size = 3});
  cards.run([&](Group& group) {
    const auto device = cards.device(group.rank());
    std::vector<float> values(200, 1.0F);
    group.synchronize(*group.start(sum_of(values, device), nullptr));
    // Rank 1 never starts its next work: the others wait on their devices.
    if (group.rank() == 0) {
      cards.nccl().kill(1);
      cards.nccl().set_asynchronous_error(0, "remote process exited");
    }
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    const auto error = error_of([&] {
      const auto operation = group.start(sum_of(values, device), nullptr);
      group.synchronize(*operation);
    });
    EXPECT_NE(error, "");
    EXPECT_THROW((void)group.start(sum_of(values, device), nullptr), PeerError);
  });
  EXPECT_EQ(cards.nccl().num_open(), 0);
  expect_new_group_works(cards);
}

TEST(NcclFailures, ADeviceThatDoesNotEndItsWorkIsNamedAfterTheDeadline) {
  Cards cards({.size = 2, .timeout = milliseconds(300)});
  cards.run([&](Group& group) {
    const auto device = cards.device(group.rank());
    std::vector<float> values(200, 1.0F);
    group.synchronize(*group.start(sum_of(values, device), nullptr));
    if (group.rank() == 0) cards.nccl().kill(1);
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    void* stream = nullptr;
    ASSERT_TRUE(cards.device_double().make_stream(stream).ok());
    // The host is inside a synchronize of the user's, which knows nothing of the group.
    const auto operation = group.start(sum_of(values, device), nullptr);
    (void)error_of([&] { group.make_wait(*operation, stream); });
    ASSERT_TRUE(cards.device_double().synchronize(stream).ok());
    const auto error = error_of([&] { (void)group.start(sum_of(values, device), nullptr); });
    EXPECT_NE(error.find("group world"), std::string::npos) << error;
  });
  EXPECT_EQ(cards.nccl().num_open(), 0);
  expect_new_group_works(cards);
}

TEST(NcclFailures, ACallThatNcclRefusesFailsTheGroupOnAllRanks) {
  for (const std::string_view refused : {"send", "receive", "all_gather", "end_group", "query"}) {
    Cards cards({.size = 2});
    cards.run([&](Group& group) {
      const auto device = cards.device(group.rank());
      std::vector<float> values(400, 1.0F);
      group.synchronize(*group.start(sum_of(values, device), nullptr));
      if (group.rank() == 0) {
        cards.nccl().set_fault([&](std::string_view function) {
          return function == refused ? DeviceStatus::failed("scripted") : DeviceStatus();
        });
      }
      group.wait(*group.start({.kind = Collective::barrier}, nullptr));
      EXPECT_THROW(
          {
            group.synchronize(*group.start(sum_of(values, device), nullptr));
            group.synchronize(*group.start(sum_of(values, device), nullptr));
          },
          PeerError)
          << refused;
    });
    EXPECT_EQ(cards.nccl().num_open(), 0);
    expect_new_group_works(cards);
  }
}

// The watcher aborts while the program starts calls: no call may reach a communicator that is gone.
TEST(NcclFailures, AnAbortRacesWithCallsWithoutAUseOfAFreedCommunicator) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Cards cards({.size = 3, .seed = seed});
    std::atomic<int> calls = 0;
    cards.run([&](Group& group) {
      const auto device = cards.device(group.rank());
      std::vector<float> values(130, 1.0F);
      const auto error = error_of([&] {
        while (true) {
          (void)group.start(sum_of(values, device), nullptr);
          if (++calls == static_cast<int>(5 * seed)) {
            cards.nccl().set_asynchronous_error(static_cast<int>(seed % 3), "scripted");
          }
        }
      });
      EXPECT_NE(error, "");
    });
    EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
    EXPECT_EQ(cards.nccl().num_open(), 0);
  }
}

TEST(NcclRatios, AreMeasuredOncePerCardAndNumberOfRanks) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "nccl_ratios";
  std::filesystem::remove_all(folder);
  const auto file = folder / "lockstep" / "nccl_ratios.json";
  EXPECT_EQ(nccl_ratio_file({{"XDG_CACHE_HOME", folder.string()}}), file);
  Cards cards({.size = 2, .stage_bytes = 16U << 20});
  cards.ratios = file;
  std::atomic<int> reductions = 0;
  cards.nccl().set_fault([&](std::string_view function) {
    if (function == "all_reduce") ++reductions;
    return DeviceStatus();
  });
  const auto sum_once = [&] {
    cards.run([&](Group& group) {
      std::vector<float> values(10, 1.0F);
      group.synchronize(*group.start(sum_of(values, cards.device(group.rank())), nullptr));
      EXPECT_EQ(values, std::vector<float>(10, 2.0F));
    });
    std::ifstream stored(file);
    return std::string(std::istreambuf_iterator<char>(stored), {});
  };
  const auto first = sum_once();
  const auto ratios = nccl_ratios_in(first);
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_EQ(ratios[0].ranks, 2);
  EXPECT_EQ(ratios[0].bytes, std::size_t{1} << 20U);
  EXPECT_EQ(ratios[1].bytes, std::size_t{25} << 20U);
  const int measured = reductions;
  EXPECT_GT(measured, 0);
  EXPECT_EQ(sum_once(), first);
  EXPECT_EQ(reductions, measured);  // read from the file
  std::ofstream(file) << "not a file of ratios";
  EXPECT_EQ(nccl_ratios_in(sum_once()).size(), 2U);
  EXPECT_GT(reductions, measured);
  std::filesystem::remove_all(folder);
}

TEST(NcclRatios, AreReadOnlyFromAValidFile) {
  const std::vector<NcclRatio> ratios{{"NVIDIA H200", 8, 25U << 20U, 262.0, 200.0}};
  const auto text = to_json(ratios);
  EXPECT_EQ(nccl_ratios_in(text), ratios);
  EXPECT_EQ(in_words(ratios),
            "nccl: time of an exact all-reduce over that of a fast one: 1.31 at 25 MiB (8 ranks, "
            "NVIDIA H200)");
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_TRUE(nccl_ratios_in(text.substr(0, length)).empty()) << length;
  }
  for (
      const char* other :
      {"[]", R"({"format":"lockstep-nccl-ratios"})",
       R"({"format":"lockstep-nccl-ratios","rows":[7,{"card":1}]})",
       R"({"format":"lockstep-nccl-ratios","rows":[{"card":"c","ranks":2,"bytes":1,"exact_us":1,"fast_us":0}]})"}) {
    EXPECT_TRUE(nccl_ratios_in(other).empty()) << other;
  }
}

TEST(NcclBootstrap, IsBoundToTheInterfaceOfAnAddress) {
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_THROW((void)interface_of("192.0.2.1"), UsageError);  // reserved for documentation
}

}  // namespace
}  // namespace lockstep
