#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stop_token>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/net/socket.h"
#include "lockstep/rendezvous/shared_page_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kNonceBytes = sizeof(HandshakeNonce);
constexpr std::size_t kNonceWords = kNonceBytes / sizeof(std::uint64_t);
constexpr std::chrono::seconds kRequestLimit{5};  // for one request

}  // namespace

SharedPage::SharedPage(std::size_t count) : memory_(count * kNonceBytes) {}

SharedPage::SharedPage(FileDescriptor memory, std::size_t count)
    : memory_(std::move(memory), count * kNonceBytes) {}

void SharedPage::write(std::size_t index, const HandshakeNonce& value) noexcept {
  auto* words = words_of(index);
  for (std::size_t i = 0; i < kNonceWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, value.data() + i * sizeof(word), sizeof(word));
    std::atomic_ref(words[i]).store(word);
  }
}

HandshakeNonce SharedPage::read(std::size_t index) const noexcept {
  HandshakeNonce value{};
  auto* words = words_of(index);
  for (std::size_t i = 0; i < kNonceWords; ++i) {
    const auto word = std::atomic_ref(words[i]).load();
    std::memcpy(value.data() + i * sizeof(word), &word, sizeof(word));
  }
  return value;
}

std::uint64_t* SharedPage::words_of(std::size_t index) const noexcept {
  return reinterpret_cast<std::uint64_t*>(memory_.bytes().data() + index * kNonceBytes);
}

PageServer::PageServer(const SharedPage& page)
    : page_(page),
      listener_(Listener::unix_random("lockstep-page-")),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_) throw SystemError("cannot create an eventfd", errno);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

PageServer::~PageServer() {
  thread_.request_stop();
  ::eventfd_write(stop_.number(), 1);
}

void PageServer::serve(const std::stop_token& stop) {
  std::array<pollfd, 2> watched{pollfd{listener_.number(), POLLIN, 0},
                                pollfd{stop_.number(), POLLIN, 0}};
  while (!stop.stop_requested()) {
    if (::poll(watched.data(), watched.size(), -1) < 0 || stop.stop_requested()) continue;
    try {
      // The name is random, but every user of the machine can see it.
      auto socket = listener_.try_accept();
      if (!socket || socket->peer_user() != ::geteuid()) continue;
      socket->send_descriptor(page_.descriptor(), Deadline::after(kRequestLimit));
    } catch (const Error&) {
      // The process that asked gets no page and counts as a separate host. Pauses, because lack of
      // descriptors would make poll return again and again.
      watched[0].fd = -1;
      ::poll(&watched[1], 1, 100);
      watched[0].fd = listener_.number();
    }
  }
}

FileDescriptor request_page(const std::string& name, Deadline deadline) {
  const auto limit = std::min(deadline, Deadline::after(kRequestLimit));
  auto socket = Socket::connect_unix(name, limit);
  if (socket.peer_user() != ::geteuid()) {
    throw UsageError(fmt::format("the Unix socket {} belongs to another user", name));
  }
  return socket.receive_descriptor(limit);
}

}  // namespace lockstep
