#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/net/address_internal.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

struct Answer {
  int result = 0;        // getaddrinfo's
  int error_number = 0;  // errno, where the result says so
  std::vector<Address> addresses;
};

Answer look_up(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  Answer answer;
  answer.result =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  answer.error_number = errno;
  if (answer.result != 0) return answer;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const auto* info = found; info != nullptr; info = info->ai_next) {
    Address address;
    address.size_bytes = info->ai_addrlen;
    std::memcpy(&address.storage, info->ai_addr, info->ai_addrlen);
    answer.addresses.push_back(address);
  }
  return answer;
}

// getaddrinfo takes no deadline and may wait minutes for a name server. So it runs on a detached
// thread, which continues alone after the deadline. The thread shares ownership of all its data.
Answer look_up_by(const Endpoint& endpoint, Deadline deadline) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<Answer> answer;  // under mutex
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, endpoint] {
    auto answer = look_up(endpoint, 0);
    const std::lock_guard lock(shared->mutex);
    shared->answer = std::move(answer);
    shared->answered.notify_one();
  }).detach();
  std::unique_lock lock(shared->mutex);
  if (!shared->answered.wait_until(lock, deadline.at(),
                                   [&] { return shared->answer.has_value(); })) {
    throw SystemError(fmt::format("waited for the address of host {} until the deadline",
                                  in_quotes(endpoint.host)),
                      ETIMEDOUT);
  }
  return std::move(*shared->answer);
}

}  // namespace

std::vector<Address> resolve(const Endpoint& endpoint, Deadline deadline) {
  auto answer = look_up(endpoint, AI_NUMERICHOST);
  if (answer.result == EAI_NONAME && !endpoint.host.empty()) {
    answer = look_up_by(endpoint, deadline);
  }
  if (answer.result == EAI_SYSTEM || answer.result == EAI_AGAIN) {
    throw SystemError(fmt::format("cannot look up host {} ({})", in_quotes(endpoint.host),
                                  ::gai_strerror(answer.result)),
                      answer.result == EAI_SYSTEM ? answer.error_number : EAGAIN);
  }
  if (answer.result != 0 || answer.addresses.empty()) {
    throw UsageError(
        fmt::format("host {} has no address ({}): check its spelling, or give its IP "
                    "address",
                    in_quotes(endpoint.host), ::gai_strerror(answer.result)));
  }
  return std::move(answer.addresses);
}

Address unix_address(std::string_view name) {
  if (name.empty() || name.size() > kMaxUnixNameBytes) {
    throw UsageError(fmt::format("the name {} of a Unix socket has {} bytes: give 1 to {}",
                                 in_quotes(name), name.size(), kMaxUnixNameBytes));
  }
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), local.sun_path + 1);  // a leading zero makes it abstract
  Address address;
  std::memcpy(&address.storage, &local, sizeof local);
  address.size_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Address local_address(int descriptor) {
  Address address;
  if (::getsockname(descriptor, address.get(), &address.size_bytes) != 0) {
    throw SystemError("cannot get the address of a socket", errno);
  }
  return address;
}

std::optional<Endpoint> try_endpoint(const Address& address) {
  if (!address.is_tcp()) return std::nullopt;
  std::array<char, NI_MAXHOST> host{};
  const int result = ::getnameinfo(address.get(), address.size_bytes, host.data(), host.size(),
                                   nullptr, 0, NI_NUMERICHOST);
  LOCKSTEP_ASSERT(result == 0, "an address from the kernel has a numeric form");
  // sockaddr_in and sockaddr_in6 have the port at the same offset.
  return Endpoint{host.data(),
                  ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port)};
}

bool is_wildcard(const Address& address) noexcept {
  if (address.family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr.s_addr == INADDR_ANY;
  }
  if (address.family() != AF_INET6) return false;
  const auto& ip = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  if (IN6_IS_ADDR_UNSPECIFIED(&ip)) return true;
  return IN6_IS_ADDR_V4MAPPED(&ip) && std::all_of(ip.s6_addr + 12, ip.s6_addr + 16,
                                                  [](unsigned char byte) { return byte == 0; });
}

bool is_same_address(const Address& left, const Address& right) noexcept {
  return left.size_bytes == right.size_bytes &&
         std::memcmp(&left.storage, &right.storage, left.size_bytes) == 0;
}

}  // namespace lockstep
