#include "lockstep/net/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/net/address_internal.h"

namespace lockstep {
namespace {

std::string_view without_scope(std::string_view address) {
  return address.substr(0, address.find('%'));
}

std::string_view scope_of(std::string_view address) {
  const auto percent = address.find('%');
  return percent == std::string_view::npos ? "" : address.substr(percent + 1);
}

// The 4 or 16 bytes of a numeric address; empty for other text.
std::vector<unsigned char> bytes_of(std::string_view address) {
  const std::string text(without_scope(address));
  std::array<unsigned char, 16> bytes{};
  if (::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) {
    return {bytes.begin(), bytes.begin() + 4};
  }
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return {bytes.begin(), bytes.end()};
  return {};
}

bool is_ipv6(std::string_view address) { return address.find(':') != std::string_view::npos; }

bool is_link_local(std::string_view address) {
  const auto bytes = bytes_of(address);
  return bytes.size() == 16 && bytes[0] == 0xfe && (bytes[1] & 0xc0U) == 0x80;
}

struct Network {
  std::vector<unsigned char> bytes;
  std::size_t num_bits = 0;

  [[nodiscard]] bool contains(std::string_view address) const {
    const auto other = bytes_of(address);
    if (other.size() != bytes.size()) return false;
    for (std::size_t bit = 0; bit < num_bits; ++bit) {
      const auto mask = 0x80U >> (bit % 8);
      if ((bytes[bit / 8] & mask) != (other[bit / 8] & mask)) return false;
    }
    return true;
  }
};

std::optional<Network> try_network(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  Network network{bytes_of(text.substr(0, slash))};
  const auto bits = text.substr(slash + 1);
  const auto* const end = bits.data() + bits.size();
  const auto [stopped, error] = std::from_chars(bits.data(), end, network.num_bits);
  if (error != std::errc{} || stopped != end || network.num_bits > 8 * network.bytes.size()) {
    return std::nullopt;
  }
  return network;
}

bool fits(const std::string& wanted, const InterfaceAddress& each) {
  if (each.interface == wanted) return true;
  if (const auto network = try_network(wanted)) return network->contains(each.address);
  const auto bytes = bytes_of(wanted);
  if (bytes.empty() || bytes != bytes_of(each.address)) return false;
  return scope_of(wanted).empty() || scope_of(wanted) == scope_of(each.address);
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw SystemError("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const auto* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const bool is_v4 = each->ifa_addr->sa_family == AF_INET;
    if (!is_v4 && each->ifa_addr->sa_family != AF_INET6) continue;
    Address address;
    address.size_bytes = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::copy_n(reinterpret_cast<const std::byte*>(each->ifa_addr), address.size_bytes,
                reinterpret_cast<std::byte*>(&address.storage));
    if (auto endpoint = try_endpoint(address)) {
      found.push_back({each->ifa_name, std::move(endpoint->host)});
    }
  }
  return found;
}

std::string choose_address(const std::string& wanted, std::span<const InterfaceAddress> available,
                           const std::string& like) {
  // The smallest is the best.
  const auto order = [&](const InterfaceAddress& each) {
    return std::pair(is_ipv6(each.address) != is_ipv6(like), is_link_local(each.address));
  };
  const InterfaceAddress* best = nullptr;
  for (const auto& each : available) {
    if (fits(wanted, each) && (best == nullptr || order(each) < order(*best))) best = &each;
  }
  if (best != nullptr) return best->address;
  std::vector<std::string> all;
  for (const auto& each : available) {
    all.push_back(fmt::format("{} {}", each.interface, each.address));
  }
  throw UsageError(
      fmt::format("no interface of this machine is {}: give the name of an interface, one of its "
                  "addresses, or a network such as 10.0.0.0/24. This machine has: {}",
                  in_quotes(wanted), fmt::join(all, ", ")));
}

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  const auto bytes = bytes_of(host);
  if (bytes.size() == 4) return bytes[0] == 127;
  return bytes.size() == 16 && bytes == bytes_of("::1");
}

std::string rescope(const std::string& address, const std::string& own) {
  if (!is_link_local(address) || scope_of(own).empty()) return address;
  return fmt::format("{}%{}", without_scope(address), scope_of(own));
}

}  // namespace lockstep
