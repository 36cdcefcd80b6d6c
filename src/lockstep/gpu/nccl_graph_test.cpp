// Calls that become part of a CUDA graph, on doubles of NCCL and of the devices.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/gpu/test_cards_internal.h"

namespace lockstep {
namespace {

class NcclGraphs : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, NcclGraphs, ::testing::Values(1, 2, 3, 8));

// An event of a capture cannot be asked, and its work ends in no time: the device is frozen here.
TEST_P(NcclGraphs, CapturedCallsAreDoneOnceTheyAreEnqueued) {
  Cards cards({.size = GetParam()});
  cards.run([&](Group& group) {
    auto& device = Cards::device_double();
    void* stream = nullptr;
    ASSERT_TRUE(device.make_stream(stream).ok());
    std::vector<float> values(700, 1.0F);
    auto call = sum_of(values, cards.device(group.rank()));
    call.stream = stream;
    group.synchronize(*group.start(call, nullptr));
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    device.freeze(true);
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    device.capture(stream, true);
    const auto refusal = error_of([&] { (void)group.start(call, nullptr); });
    EXPECT_NE(refusal.find("CudaGraphStepOptions::groups"), std::string::npos) << refusal;
    group.allow_capture(true);
    const auto operation = group.start(call, nullptr);
    group.make_wait(*operation, stream);
    EXPECT_TRUE(group.done(*operation));
    group.allow_capture(false);
    device.capture(stream, false);
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    device.freeze(false);
    ASSERT_TRUE(device.synchronize(stream).ok());
    const auto size = static_cast<float>(group.size());
    EXPECT_EQ(values, std::vector<float>(700, size * size));
    group.note_replay(stream);
    group.synchronize(*group.start(call, nullptr));
  });
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

TEST(NcclReplays, AReplayThatDoesNotEndIsNamedAfterTheDeadline) {
  Cards cards({.size = 2, .timeout = std::chrono::milliseconds(300)});
  cards.run([&](Group& group) {
    std::atomic<bool> is_over = false;  // the device work of this rank
    auto& device = Cards::device_double();
    std::vector<float> values(200, 1.0F);
    group.synchronize(*group.start(sum_of(values, cards.device(group.rank())), nullptr));
    void* stream = nullptr;
    ASSERT_TRUE(device.make_stream(stream).ok());
    device.enqueue(
        stream, [&] { return is_over.load(); }, [] {}, /*polls=*/true);
    group.note_replay(stream);
    const auto limit = Deadline::after(std::chrono::seconds(20));
    std::string error;
    for (; error.empty() && !limit.expired(); std::this_thread::yield()) {
      error = error_of([&] { group.advance(); });
    }
    EXPECT_NE(error.find("replay 1 of a CUDA graph"), std::string::npos) << error;
    is_over = true;
    ASSERT_TRUE(device.synchronize(stream).ok());
  });
}

}  // namespace
}  // namespace lockstep
