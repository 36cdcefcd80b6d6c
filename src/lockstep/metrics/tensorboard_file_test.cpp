#include "lockstep/metrics/tensorboard_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/metrics/test_folder_internal.h"

namespace lockstep {
namespace {

using namespace std::string_literals;

// The payloads of a file with valid records.
std::vector<std::string> payloads(const std::string& file) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data() + at, sizeof length);
    const auto payload = file.substr(at + 12, length);
    EXPECT_EQ(file.substr(at, 16 + length), tensorboard_record(payload));
    found.push_back(payload);
    at += 16 + length;
  }
  return found;
}

using TensorBoardFileTest = FolderTest;

// The expected bytes are from TensorBoard's own record writer.
TEST_F(TensorBoardFileTest, ARecordIsFramedAsInTheGoldenBytes) {
  EXPECT_EQ(tensorboard_record("abc"),
            "\x03\0\0\0\0\0\0\0"s + "\xb0\x99\x49\x0e" + "abc" + "\x6e\x57\xf1\x21");
}

TEST_F(TensorBoardFileTest, EventsAreTheGoldenBytesExceptTheTime) {
  TensorBoardFile file(folder_);
  file.scalar("train/loss", 1.5, 300);
  file.text("eval/sample", "To be", 7);
  const auto events = payloads(contents(file.path()));
  ASSERT_EQ(events.size(), 3u);
  for (const auto& event : events) {
    EXPECT_EQ(event.front(), '\x09');  // field 1, 8 bytes: the time
    double time = 0;
    std::memcpy(&time, event.data() + 1, sizeof time);
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    EXPECT_NEAR(time, now.count(), 60);
  }
  EXPECT_EQ(events[0].substr(9),
            "\x10\0\x1a\x0d"s
            "brain.Event:2");
  EXPECT_EQ(events[1].substr(9),
            "\x10\xac\x02"      // step 300
            "\x2a\x13\x0a\x11"  // summary, value
            "\x0a\x0a"
            "train/loss"           // tag
            "\x15\0\0\xc0\x3f"s);  // 1.5 as a float
  EXPECT_EQ(events[2].substr(9),
            "\x10\x07"
            "\x2a\x2a\x0a\x28"
            "\x0a\x0b"
            "eval/sample"
            "\x42\x0f\x08\x07\x12\x04\x12\x02\x08\x01\x42\x05To be"  // tensor of one string
            "\x4a\x08\x0a\x06\x0a\x04text"s);                        // for the plugin text
}

TEST_F(TensorBoardFileTest, EveryStartHasItsOwnFileThatSortsAfterThePreviousOne) {
  std::string last;
  for (int start = 0; start < 5; ++start) {
    const TensorBoardFile file(path("runs/mine"));
    EXPECT_GT(file.path(), last);
    last = file.path();
    EXPECT_NE(last.find("/events.out.tfevents."), std::string::npos);
  }
}

TEST_F(TensorBoardFileTest, AResumedRunStatesFromWhichStepEarlierFilesAreInvalid) {
  const TensorBoardFile file(folder_, {.first_step = 5});
  const auto events = payloads(contents(file.path()));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].substr(9), "\x10\x05\x3a\x02\x08\x01");
}

TEST_F(TensorBoardFileTest, AFolderThatIsNotCreatedIsNamed) {
  try {
    const TensorBoardFile file("/proc/nowhere");
    FAIL() << "made a folder in /proc";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("/proc/nowhere"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
