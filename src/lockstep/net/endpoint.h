// A TCP endpoint: a host, by name or address, and a port.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct Endpoint {
  std::string host;  // a name or an address; IPv6 without brackets
  std::uint16_t port = 0;

  /// Parses "HOST:PORT", with an IPv6 address in brackets: "[fd00::2]:29500".
  /// Throws UsageError, quoting `text`, for anything else, including port 0 and an IPv6 address
  /// without brackets.
  [[nodiscard]] static Endpoint parse(std::string_view text);

  /// The text that parse() accepts.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace lockstep
