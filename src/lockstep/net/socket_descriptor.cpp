// The two functions of Socket that pass an open file to another process, by SCM_RIGHTS (unix(7)).
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

// All descriptors that arrived with `message`, owned, so that none stays open by mistake.
std::vector<FileDescriptor> received_descriptors(msghdr& message) {
  std::vector<FileDescriptor> received;
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const auto num_descriptors = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < num_descriptors; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof number);
      received.emplace_back(number);
    }
  }
  return received;
}

}  // namespace

void Socket::send_descriptor(int descriptor, Deadline deadline) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
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
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  while (::sendmsg(number(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EAGAIN) {
      wait_for(POLLOUT, "room to send a descriptor to", deadline);
    } else if (errno != EINTR) {
      throw SystemError(fmt::format("cannot send descriptor {} to {}", descriptor, peer_), errno);
    }
  }
}

FileDescriptor Socket::receive_descriptor(Deadline deadline) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  std::byte mark{};
  iovec data{&mark, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  while ((count = ::recvmsg(number(), &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EAGAIN) {
      wait_for(POLLIN, "a descriptor from", deadline);
    } else if (errno != EINTR) {
      throw SystemError(fmt::format("cannot receive a descriptor from {}", peer_), errno);
    }
  }
  if (count == 0) {
    throw SystemError(fmt::format("{} closed the connection before it sent a descriptor", peer_),
                      ECONNRESET);
  }
  // Alignment may leave room for more than one; the kernel drops those without room and sets a
  // flag.
  auto received = received_descriptors(message);
  if (received.size() != 1 || (message.msg_flags & MSG_CTRUNC) != 0) {
    throw SystemError(
        fmt::format("expected one descriptor from {}, got {}{}", peer_, received.size(),
                    (message.msg_flags & MSG_CTRUNC) != 0 ? " and more" : ""),
        EPROTO);
  }
  return std::move(received.front());
}

}  // namespace lockstep
