#include "lockstep/net/endpoint.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

// The characters of names and addresses; '%' precedes the interface of an IPv6 address.
bool is_host(std::string_view text) {
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:%";
  return !text.empty() && text.find_first_not_of(letters) == std::string_view::npos;
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size() || port == 0) return std::nullopt;
  return port;
}

}  // namespace

Endpoint Endpoint::parse(std::string_view text) {
  const auto colon = text.rfind(':');
  const auto port =
      colon == std::string_view::npos ? std::nullopt : parse_port(text.substr(colon + 1));
  auto host = text.substr(0, colon);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool has_colon = host.find(':') != std::string_view::npos;
  if (!port || !is_host(host) || has_colon != bracketed) {
    throw UsageError(
        fmt::format("{} is not a valid endpoint: give HOST:PORT, with a port from 1 to 65535 and "
                    "an IPv6 address in brackets, such as node1:29500 or [fd00::2]:29500",
                    in_quotes(text)));
  }
  return {std::string(host), *port};
}

std::string Endpoint::to_string() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace lockstep
