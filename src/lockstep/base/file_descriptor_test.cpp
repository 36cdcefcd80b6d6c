#include "lockstep/base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

bool is_open_number(int number) { return ::fcntl(number, F_GETFD) >= 0; }

TEST(FileDescriptor, ClosesWhenItGoesAway) {
  int number = -1;
  {
    const auto file = FileDescriptor::open("/dev/null", O_RDONLY);
    number = file.number();
    EXPECT_TRUE(is_open_number(number));
  }
  EXPECT_FALSE(is_open_number(number));
}

TEST(FileDescriptor, MovesOwnershipAndClosesWhatItHeld) {
  auto first = FileDescriptor::open("/dev/null", O_RDONLY);
  auto second = FileDescriptor::open("/dev/zero", O_RDONLY);
  const int kept = first.number();
  const int dropped = second.number();
  second = std::move(first);
  EXPECT_EQ(second.number(), kept);
  EXPECT_FALSE(is_open_number(dropped));
}

TEST(FileDescriptor, IsNotInheritedByPrograms) {
  const auto file = FileDescriptor::open("/dev/null", O_RDONLY);
  EXPECT_NE(::fcntl(file.number(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(file.duplicate().number(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(FileDescriptor, OpeningAMissingFileNamesThePath) {
  try {
    (void)FileDescriptor::open("/nowhere/at/all", O_RDONLY);
    FAIL() << "opened a file that is not there";
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(), "cannot open /nowhere/at/all: No such file or directory");
  }
}

TEST(FileDescriptor, WriteAllDeliversMoreThanThePipeHolds) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const std::vector<std::byte> sent(1u << 20, std::byte{7});
  std::vector<std::byte> received;
  std::jthread drain([&] {
    std::array<std::byte, 4096> chunk{};
    ssize_t count = 0;
    while ((count = ::read(reader.number(), chunk.data(), chunk.size())) > 0) {
      received.insert(received.end(), chunk.begin(), chunk.begin() + count);
    }
  });
  write_all(writer.number(), sent, "a pipe");
  writer.reset();
  drain.join();
  EXPECT_EQ(received, sent);
}

TEST(FileDescriptor, WriteAllNamesTheTargetWhenTheDiskIsFull) {
  const auto full = FileDescriptor::open("/dev/full", O_WRONLY);
  const std::array<std::byte, 3> bytes{};
  try {
    write_all(full.number(), bytes, "the run log");
    FAIL() << "wrote to a full device";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOSPC);
    EXPECT_STREQ(error.what(), "cannot write 3 bytes to the run log: No space left on device");
  }
}

}  // namespace
}  // namespace lockstep
