#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

constexpr std::size_t kSlotBytes = sizeof(HandshakeNonce);
constexpr std::size_t kSlotWords = kSlotBytes / sizeof(std::uint64_t);
constexpr std::chrono::seconds kPatience{5};  // with one process that asks

std::string random_name() {
  std::string name = "lockstep-page-";
  const auto nonce = fresh_nonce();
  for (const auto byte : std::span(nonce).first(16)) {
    name += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return name;
}

}  // namespace

SharedPage::SharedPage(std::size_t num_slots)
    : memory_(::memfd_create("lockstep page", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      num_slots_(num_slots) {
  if (!memory_) throw SystemError("cannot make a shared page", errno);
  if (::ftruncate(memory_.number(), static_cast<off_t>(num_slots * kSlotBytes)) != 0 ||
      ::fcntl(memory_.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw SystemError("cannot give a shared page its size", errno);
  }
  map();
}

SharedPage::SharedPage(FileDescriptor memory, std::size_t num_slots)
    : memory_(std::move(memory)), num_slots_(num_slots) {
  struct stat facts {};
  const bool sized = ::fstat(memory_.number(), &facts) == 0 &&
                     facts.st_size == static_cast<off_t>(num_slots * kSlotBytes);
  const int seals = ::fcntl(memory_.number(), F_GET_SEALS);
  // Reading memory whose file shrinks would end the process.
  if (!sized || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw UsageError("what was received is no shared page of this job's");
  }
  map();
}

SharedPage::~SharedPage() { ::munmap(words_, num_slots_ * kSlotBytes); }

void SharedPage::write(std::size_t slot, const HandshakeNonce& value) noexcept {
  for (std::size_t i = 0; i < kSlotWords; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, value.data() + i * sizeof(word), sizeof(word));
    std::atomic_ref(words_[slot * kSlotWords + i]).store(word);
  }
}

HandshakeNonce SharedPage::read(std::size_t slot) const noexcept {
  HandshakeNonce value{};
  for (std::size_t i = 0; i < kSlotWords; ++i) {
    const auto word = std::atomic_ref(words_[slot * kSlotWords + i]).load();
    std::memcpy(value.data() + i * sizeof(word), &word, sizeof(word));
  }
  return value;
}

void SharedPage::map() {
  void* start = ::mmap(nullptr, num_slots_ * kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                       memory_.number(), 0);
  if (start == MAP_FAILED) throw SystemError("cannot map a shared page", errno);
  words_ = static_cast<std::uint64_t*>(start);
}

PageServer::PageServer(const SharedPage& page)
    : page_(page),
      name_(random_name()),
      listener_(Listener::unix_socket(name_)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_) throw SystemError("cannot make an eventfd", errno);
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
      socket->send_descriptor(page_.descriptor(), Deadline::after(kPatience));
    } catch (const Error&) {
      // Who asked does without, and is a host of its own. Descriptors that have run out would wake
      // us without end.
      watched[0].fd = -1;
      ::poll(&watched[1], 1, 100);
      watched[0].fd = listener_.number();
    }
  }
}

FileDescriptor ask_for_page(const std::string& name, Deadline deadline) {
  const auto limit = std::min(deadline, Deadline::after(kPatience));
  auto socket = Socket::connect_unix(name, limit);
  if (socket.peer_user() != ::geteuid()) {
    throw UsageError(fmt::format("the Unix socket {} belongs to another user", name));
  }
  return socket.receive_descriptor(limit);
}

}  // namespace lockstep
