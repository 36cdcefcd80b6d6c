// Addresses as the kernel takes them, and how they are found.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/net/endpoint.h"

namespace lockstep {

struct Address {
  sockaddr_storage storage{};
  socklen_t size_bytes = sizeof(sockaddr_storage);

  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] bool is_tcp() const noexcept { return family() == AF_INET || family() == AF_INET6; }
};

/// The TCP addresses of an endpoint, at least one.
/// Throws UsageError when its host has none; SystemError when the name service does not answer, or
/// not by the deadline.
[[nodiscard]] std::vector<Address> resolve(const Endpoint& endpoint, Deadline deadline);

/// The abstract Unix address `name`. Throws UsageError when it is empty or too long.
[[nodiscard]] Address unix_address(std::string_view name);

/// This end's address of a socket. Throws SystemError.
[[nodiscard]] Address local_address(int descriptor);

/// The endpoint, with its host as a number; nothing for an address that is not TCP's.
[[nodiscard]] std::optional<Endpoint> try_endpoint(const Address& address);

/// True for the address that stands for all of a machine's.
[[nodiscard]] bool is_wildcard(const Address& address) noexcept;

[[nodiscard]] bool is_same_address(const Address& left, const Address& right) noexcept;

}  // namespace lockstep
