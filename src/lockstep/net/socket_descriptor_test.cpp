#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/net/socket.h"
#include "lockstep/testing/soon.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;
using testing::soon;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::size_t num_open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// The error number that receiving a descriptor throws; 0 when it does not throw.
int refusal_of_receiving(Socket& socket) {
  try {
    (void)socket.receive_descriptor(soon());
    return 0;
  } catch (const SystemError& error) {
    return error.error_number();
  }
}

TEST(SocketDescriptor, PassesAnOpenFile) {
  auto [left, right] = Socket::pair();
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  left.send_all(bytes_of("before"), soon());
  left.send_descriptor(writer.number(), soon());
  left.send_all(bytes_of("after"), soon());
  writer.reset();
  Bytes before(6);
  right.receive_exactly(before, soon());
  auto received = right.receive_descriptor(soon());
  EXPECT_NE(::fcntl(received.number(), F_GETFD) & FD_CLOEXEC, 0);
  Bytes after(5);
  right.receive_exactly(after, soon());
  EXPECT_EQ(after, bytes_of("after"));
  EXPECT_EQ(::write(received.number(), "x", 1), 1);
  char letter = 0;
  EXPECT_EQ(::read(reader.number(), &letter, 1), 1);
  EXPECT_EQ(letter, 'x');
}

// Sends `count` descriptors in one message, which Socket never does.
void send_many(const Socket& to, int descriptor, std::size_t count) {
  std::vector<std::byte> control(CMSG_SPACE(count * sizeof(int)));
  std::byte mark{};
  iovec data{&mark, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  auto* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(count * sizeof(int));
  const std::vector<int> numbers(count, descriptor);
  std::copy_n(reinterpret_cast<const unsigned char*>(numbers.data()), count * sizeof(int),
              CMSG_DATA(part));
  ASSERT_EQ(::sendmsg(to.number(), &message, MSG_NOSIGNAL), 1);
}

TEST(SocketDescriptor, UnwantedDescriptorsAreRefusedAndClosed) {
  auto [left, right] = Socket::pair();
  const auto before = num_open_descriptors();
  right.send_all(Bytes(1), soon());
  EXPECT_EQ(refusal_of_receiving(left), EPROTO) << "a byte without a descriptor";
  for (const std::size_t count : {2u, 3u, 100u}) {
    send_many(left, 0, count);
    EXPECT_EQ(refusal_of_receiving(right), EPROTO);
  }
  send_many(left, 0, 5);
  Bytes byte(1);
  right.receive_exactly(byte, soon());  // as if it were only bytes
  { const Socket closed = std::move(left); }
  EXPECT_EQ(refusal_of_receiving(right), ECONNRESET);
  EXPECT_EQ(num_open_descriptors(), before - 1) << "more than the closed end was closed";
}

}  // namespace
}  // namespace lockstep
