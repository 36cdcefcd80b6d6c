// A range of TCP ports, for machines whose firewall opens only some.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;  // belongs to the range

  /// Parses "40000-40100", or one port. Throws UsageError, quoting `text`, for anything else,
  /// including port 0 and a range whose end is below its begin.
  [[nodiscard]] static PortRange parse(std::string_view text);
  /// The text that parse() accepts.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const PortRange&, const PortRange&) = default;
};

}  // namespace lockstep
