// NCCL on a real GPU. NCCL needs a GPU per rank, so that one GPU allows one rank: its calls take
// the whole path of several ranks (all-to-all, reduction, all-gather), without a shortcut.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_conformance_internal.h"
#include "lockstep/fabric/test_group_internal.h"
#include "lockstep/gpu/watcher.h"

namespace lockstep {
namespace {

void use_device(std::size_t stage_bytes) {
  SuiteDevice::set(SuiteDevice::Setting{.backend = BackendKind::nccl,
                                        .stage_bytes = stage_bytes,
                                        .functions = &cuda_functions,
                                        .watcher = &watcher_of_process,
                                        .nccl = &nccl_functions});
}

class NcclOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (!cuda_functions()->count_devices(count).ok() || count == 0) {
      GTEST_SKIP() << "no GPU on this machine";
    }
    const auto loaded = load_nccl();
    ASSERT_TRUE(loaded.functions) << loaded.why;
  }
  // Ranks are threads: this process has already asked CUDA for its devices, and must not fork.
  static void run_ranks(int size, std::size_t stage_bytes, const GroupBody& body) {
    use_device(stage_bytes);
    const auto point = MeetingPoint::of_threads();
    const auto server = point.serve();
    testing::run_ranks_as_threads(size, [&](testing::Rank& self) {
      const auto world = point.join(self.rank(), self.size());
      body(*make_test_group(TransportKind::nccl, world, {}));
    });
    SuiteDevice::set(std::nullopt);
  }
};

// Memory of the device with the values of the host, and back.
class Values {
 public:
  explicit Values(std::vector<float> host)
      : host_(std::move(host)), memory_(host_.size() * sizeof(float)) {
    copy(memory_.bytes().data(), reinterpret_cast<const std::byte*>(host_.data()));
  }
  [[nodiscard]] std::vector<float> read() {
    copy(reinterpret_cast<std::byte*>(host_.data()), memory_.bytes().data());
    return host_;
  }
  [[nodiscard]] Call call(ReduceOp op) const {
    return {.kind = Collective::all_reduce,
            .dtype = DType::float32,
            .op = op,
            .count = static_cast<std::int64_t>(host_.size()),
            .input = memory_.bytes(),
            .output = memory_.bytes()};
  }

 private:
  void copy(std::byte* to, const std::byte* from) const {
    ASSERT_TRUE(SuiteDevice::get()->copy(to, from, memory_.bytes().size(), nullptr).ok());
    ASSERT_TRUE(SuiteDevice::get()->synchronize(nullptr).ok());
  }

  std::vector<float> host_;
  SuiteMemory memory_;
};

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(static_cast<float>(i % 8191) + 0.3F, static_cast<int>(i % 17) - 8);
  }
  return values;
}

TEST_F(NcclOnGpu, EveryCollectiveTypeAndOperationGivesTheBitsOfTheOracle) {
  run_ranks(1, 4096, [](Group& group) {
    for (const auto dtype : kDTypes) check_all(group, 2048, dtype);
    EXPECT_EQ(group.device_kind(), "nccl");
  });
}

TEST_F(NcclOnGpu, AveragesInPiecesHaveTheBitsOfOneDivision) {
  run_ranks(1, 1U << 20, [](Group& group) {
    const auto wanted = ramp(3'000'001);
    Values values(wanted);
    auto call = values.call(ReduceOp::weighted_average);
    call.weight = 3;
    run(group, call);
    const auto found = values.read();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_EQ(found[i], wanted[i] / 3.0F) << "element " << i;
    }
  });
}

TEST_F(NcclOnGpu, GroupsFollowEachOtherInOneProcess) {
  for (int round = 0; round < 3; ++round) {
    run_ranks(1, 1U << 20, [](Group& group) {
      Values values({1, 2, 3});
      run(group, values.call(ReduceOp::sum));
      EXPECT_EQ(values.read(), (std::vector<float>{1, 2, 3}));
    });
  }
}

TEST_F(NcclOnGpu, TwoRanksOfOneGpuAreRefusedBeforeNcclIsCalled) {
  run_ranks(2, 1U << 20, [](Group& group) {
    Values values({1, 2, 3});
    try {
      run(group, values.call(ReduceOp::sum));
      ADD_FAILURE() << "no error";
    } catch (const UsageError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("backend nccl was requested"), std::string::npos) << text;
      EXPECT_EQ(text.find("Duplicate GPU"), std::string::npos) << text;
    }
  });
}

// Printed for people; the time of one call in a row of many.
TEST_F(NcclOnGpu, PrintsTheTimeOfAnAllReduce) {
  run_ranks(1, 16U << 20, [](Group& group) {
    constexpr int kCalls = 50;
    for (const std::size_t bytes : {std::size_t{4} << 10U, std::size_t{25} << 20U}) {
      Values values(ramp(bytes / sizeof(float)));
      run(group, values.call(ReduceOp::sum));
      std::vector<std::shared_ptr<Operation>> operations;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) {
        operations.push_back(group.start(on_device(group, values.call(ReduceOp::sum)), nullptr));
      }
      const std::chrono::duration<double, std::micro> host =
          std::chrono::steady_clock::now() - start;
      finish(group, *operations.back());
      const std::chrono::duration<double, std::micro> all =
          std::chrono::steady_clock::now() - start;
      std::cout << "one rank, " << bytes << " bytes: " << host.count() / kCalls
                << " us of the host, " << all.count() / kCalls << " us in all per call\n";
    }
  });
}

}  // namespace
}  // namespace lockstep
