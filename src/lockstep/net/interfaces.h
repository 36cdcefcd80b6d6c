// The network interfaces of this machine, and which of their addresses a job uses.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric; a link-local IPv6 address with its scope: "fe80::1%eth0"

  friend bool operator==(const InterfaceAddress&, const InterfaceAddress&) = default;
};

/// The addresses of all interfaces of this machine that are up. Throws SystemError.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// The one of `available` that `wanted` means: the name of an interface ("eth0"), an address
/// ("10.0.0.7", without a scope), or a network ("10.0.0.0/24", "fd00::/64"). If several fit, first
/// one of the IP version of `like`, then one that is not link-local, then the first.
/// Throws UsageError, with all that are available, if none fits.
[[nodiscard]] std::string choose_address(const std::string& wanted,
                                         std::span<const InterfaceAddress> available,
                                         const std::string& like);

/// Whether only processes of the same machine reach this address or name.
[[nodiscard]] bool is_loopback(std::string_view host);

/// `address`, as another machine announced it, for use on this machine, whose own address is `own`.
/// The scope of a link-local IPv6 address names an interface of the machine that uses it, so it is
/// replaced by that of `own`. Other addresses do not change.
[[nodiscard]] std::string rescope(const std::string& address, const std::string& own);

}  // namespace lockstep
