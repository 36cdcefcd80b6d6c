// Socket addresses in the kernel's format, and name resolution.
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

/// Resolves the TCP addresses of an endpoint; at least one.
/// Throws UsageError when the host has none; SystemError when the name service does not answer by
/// the deadline or fails.
[[nodiscard]] std::vector<Address> resolve(const Endpoint& endpoint, Deadline deadline);

/// The abstract Unix address `name`. Throws UsageError when it is empty or too long.
[[nodiscard]] Address unix_address(std::string_view name);

/// The local address of a socket. Throws SystemError.
[[nodiscard]] Address local_address(int descriptor);

/// The endpoint, with a numeric host; nullopt for an address that is not a TCP address.
[[nodiscard]] std::optional<Endpoint> try_endpoint(const Address& address);

/// True for the wildcard address, which means all addresses of a machine.
[[nodiscard]] bool is_wildcard(const Address& address) noexcept;

[[nodiscard]] bool is_same_address(const Address& left, const Address& right) noexcept;

}  // namespace lockstep
