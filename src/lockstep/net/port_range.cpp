#include "lockstep/net/port_range.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

std::optional<std::uint16_t> try_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc{} || stopped != end || port == 0) return std::nullopt;
  return port;
}

}  // namespace

PortRange PortRange::parse(std::string_view text) {
  const auto dash = text.find('-');
  const auto first = try_port(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : try_port(text.substr(dash + 1));
  if (!first || !last || *last < *first) {
    throw UsageError(
        fmt::format("{} is not a range of ports: give two numbers from 1 to 65535, "
                    "such as 40000-40100",
                    in_quotes(text)));
  }
  return {*first, *last};
}

std::string PortRange::to_string() const { return fmt::format("{}-{}", first, last); }

}  // namespace lockstep
