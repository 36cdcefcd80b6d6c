// With a double of a device: its clock moves only when a test moves it.
#include "lockstep/ddp/device_timeline.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <array>

namespace lockstep {
namespace {

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);
constexpr std::size_t kCompute = 0;  // the current stream
constexpr std::size_t kPool = 1;     // the only stream of the pool

// LibTorch finds a device's functions by its type, so the state of the double is static.
std::array<double, 2> stream_times;  // in milliseconds: the end of the work on each stream
c10::StreamId current_stream = kCompute;

class DeviceDouble final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return stream(current_stream); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(kPool); }
  c10::Stream exchangeStream(c10::Stream next) const override {
    return stream(std::exchange(current_stream, next.id()));
  }
  void record(void** event, const c10::Stream& on, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new double;
    *static_cast<double*>(*event) = stream_times.at(static_cast<std::size_t>(on.id()));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<double*>(event);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return *static_cast<double*>(to) - *static_cast<double*>(from);
  }

 private:
  static c10::Stream stream(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, id);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceDouble)

class DeviceTimelineTest : public ::testing::Test {
 protected:
  DeviceTimelineTest() { stream_times = {10, 0}; }

  DeviceTimeline timeline_for(std::size_t num_buckets) { return {kDevice, num_buckets}; }
  // The backward's own work on a bucket ends at `time`, and its reduction is enqueued.
  static void launch(DeviceTimeline& timeline, std::size_t bucket, double time) {
    stream_times[kCompute] = time;
    timeline.mark_ready(bucket);
    timeline.mark_launched(bucket);
  }
};

TEST_F(DeviceTimelineTest, GivesTheTimesOfEachBucketAfterTheFirstGradient) {
  auto timeline = timeline_for(2);
  launch(timeline, 0, 12);
  launch(timeline, 1, 15);
  stream_times[kCompute] = 16;
  timeline.mark_end_of_backward();
  timeline.mark_done(0, [] { stream_times[kPool] = 18; });
  timeline.mark_done(1, [] { stream_times[kPool] = 21; });
  const auto times = timeline.read();
  EXPECT_EQ(times.backward.count(), 6);
  ASSERT_EQ(times.buckets.size(), 2u);
  EXPECT_EQ(times.buckets[0].ready.count(), 2);
  EXPECT_EQ(times.buckets[0].begun.count(), 2);
  EXPECT_EQ(times.buckets[0].done.count(), 8);
  EXPECT_EQ(times.buckets[1].ready.count(), 5);
  EXPECT_EQ(times.buckets[1].begun.count(), 8) << "the reduction of the bucket before ended then";
  EXPECT_EQ(times.buckets[1].done.count(), 11);
}

TEST_F(DeviceTimelineTest, WaitsForReductionsOnAStreamOfItsOwn) {
  auto timeline = timeline_for(1);
  launch(timeline, 0, 12);
  c10::StreamId waiting = -1;
  timeline.mark_done(0, [&] { waiting = current_stream; });
  EXPECT_EQ(waiting, static_cast<c10::StreamId>(kPool));
  EXPECT_EQ(current_stream, static_cast<c10::StreamId>(kCompute));
}

TEST_F(DeviceTimelineTest, ABucketWithoutAReductionIsDoneWhenItWasLaunched) {
  auto timeline = timeline_for(1);
  launch(timeline, 0, 14);
  const auto times = timeline.read();
  EXPECT_EQ(times.buckets.at(0).done.count(), 4);
}

}  // namespace
}  // namespace lockstep
