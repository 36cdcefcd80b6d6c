// Calls that become part of a CUDA graph, on doubles of NCCL and of the devices.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
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
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    Cards::nccl().drop_graphs();
  });
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

// A stream of this rank's device.
void* make_stream() {
  void* stream = nullptr;
  EXPECT_TRUE(Cards::device_double().make_stream(stream).ok());
  return stream;
}

// The group has a graph with a call from now on.
void capture_a_call(Group& group, Call call) {
  auto& device = Cards::device_double();
  call.stream = make_stream();
  group.synchronize(*group.start(call, nullptr));
  device.capture(call.stream, true);
  group.allow_capture(true);
  group.make_wait(*group.start(call, nullptr), call.stream);
  group.allow_capture(false);
  device.capture(call.stream, false);
  ASSERT_TRUE(device.synchronize(call.stream).ok());
}

// Executes whatever can be executed, up to a probability of 2^-200 for each first task of a stream.
void let_streams_run() {
  auto* const stream = make_stream();
  for (int i = 0; i < 200; ++i) Cards::device_double().enqueue(stream, nullptr, [] {});
  ASSERT_TRUE(Cards::device_double().synchronize(stream).ok());
}

// NCCL frees an aborted communicator when its graphs have been destroyed, and the owner of a graph
// destroys it when it has got the error.
TEST(NcclReplays, AReplayThatDoesNotEndIsNamedAfterTheDeadlineWhileTheGraphExists) {
  Cards cards({.size = 2, .timeout = std::chrono::milliseconds(300)});
  std::barrier both(2);
  cards.run([&](Group& group) {
    auto& device = Cards::device_double();
    std::vector<float> values(200, 1.0F);
    capture_a_call(group, sum_of(values, cards.device(group.rank())));
    auto* const stream = make_stream();
    group.begin_replay(stream);
    device.enqueue(
        stream, [] { return Cards::nccl().num_aborted() == 2; }, [] {}, /*polls=*/true);
    group.note_replay(stream);
    const auto limit = Deadline::after(std::chrono::seconds(20));
    std::string error;
    for (; error.empty() && !limit.expired(); std::this_thread::yield()) {
      error = error_of([&] { group.advance(); });
    }
    EXPECT_NE(error.find("replay 1 of a CUDA graph"), std::string::npos) << error;
    ASSERT_TRUE(device.synchronize(stream).ok());
    EXPECT_EQ(Cards::nccl().num_freed(), 0);
    both.arrive_and_wait();
    Cards::nccl().drop_graphs();
  });
  EXPECT_EQ(cards.nccl().num_freed(), 2);
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

TEST(NcclReplays, ARankThatDoesNotReplayIsNamedWhileTheGraphExists) {
  Cards cards({.size = 2, .timeout = std::chrono::milliseconds(300)});
  std::barrier both(2);
  cards.run([&](Group& group) {
    std::vector<float> values(200, 1.0F);
    capture_a_call(group, sum_of(values, cards.device(group.rank())));
    if (group.rank() == 0) {
      const auto error =
          error_of([&] { group.wait(*group.start({.kind = Collective::barrier}, nullptr)); });
      EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
      EXPECT_EQ(Cards::nccl().num_freed(), 0);
    }
    both.arrive_and_wait();
    Cards::nccl().drop_graphs();
  });
  EXPECT_EQ(cards.nccl().num_open(), 0);
  EXPECT_EQ(cards.nccl().violations(), std::vector<std::string>());
}

// They use the same scratch memory.
TEST(NcclReplays, AReplayFollowsEarlierCallsAndLaterOnesFollowIt) {
  Cards cards({.size = 2});
  cards.run([&](Group& group) {
    auto& device = Cards::device_double();
    std::atomic<bool> has_input = false;
    std::atomic<bool> may_end = false;
    float at_begin = 0;  // what the replay finds
    float at_end = 0;
    std::vector<float> values(200, 1.0F);
    auto call = sum_of(values, cards.device(group.rank()));
    group.synchronize(*group.start(call, nullptr));
    call.stream = make_stream();
    device.enqueue(
        call.stream, [&] { return has_input.load(); }, [] {}, /*polls=*/true);
    const auto earlier = group.start(call, nullptr);
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    auto* const stream = make_stream();
    group.begin_replay(stream);
    device.enqueue(stream, nullptr, [&] { at_begin = values[0]; });
    device.enqueue(
        stream, [&] { return may_end.load(); }, [&] { at_end = values[0]; }, /*polls=*/true);
    group.note_replay(stream);
    let_streams_run();
    has_input = true;
    const auto later = group.start(call, nullptr);
    group.wait(*group.start({.kind = Collective::barrier}, nullptr));
    group.synchronize(*earlier);
    let_streams_run();
    may_end = true;
    group.synchronize(*later);
    ASSERT_TRUE(device.synchronize(stream).ok());
    EXPECT_EQ(at_begin, 4);
    EXPECT_EQ(at_end, 4);
    EXPECT_EQ(values[0], 8);
  });
}

TEST(NcclReplays, ARankLeavesWhenItsReplayHasEnded) {
  Cards cards({.size = 2});
  std::array<std::atomic<int>, 2> polls{};
  std::atomic<int> num_ended = 0;
  cards.run([&](Group& group) {
    std::vector<float> values(200, 1.0F);
    group.synchronize(*group.start(sum_of(values, cards.device(group.rank())), nullptr));
    auto* const stream = make_stream();
    auto& own = polls[static_cast<std::size_t>(group.rank())];
    group.begin_replay(stream);
    Cards::device_double().enqueue(
        stream, [&own] { return ++own > 2000; }, [&] { ++num_ended; }, /*polls=*/true);
    group.note_replay(stream);
  });
  EXPECT_EQ(num_ended, 2);
}

TEST(NcclReplays, AMessageOfACapturedStepIsRefusedAndTheGroupRemainsUsable) {
  Cards cards({.size = 2});
  cards.run([&](Group& group) {
    auto& device = Cards::device_double();
    std::vector<float> values(200, 1.0F);
    const auto call = sum_of(values, cards.device(group.rank()));
    Message message{.peer = 1 - group.rank(),
                    .tag = 7,
                    .dtype = DType::float32,
                    .count = 200,
                    .device = call.device,
                    .stream = make_stream()};
    device.capture(message.stream, true);
    group.allow_capture(true);
    const auto error = error_of([&] { (void)group.send(message, call.input, nullptr); });
    EXPECT_NE(error.find("a message with tag 7"), std::string::npos) << error;
    group.allow_capture(false);
    device.capture(message.stream, false);
    group.synchronize(*group.start(call, nullptr));
  });
}

}  // namespace
}  // namespace lockstep
