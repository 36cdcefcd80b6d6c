#include "lockstep/rendezvous/network_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

constexpr const char* kInterface = "LOCKSTEP_INTERFACE";
constexpr const char* kPorts = "LOCKSTEP_PORTS";
constexpr const char* kHeartbeat = "LOCKSTEP_HEARTBEAT";
constexpr const char* kEncrypt = "LOCKSTEP_ENCRYPT";
constexpr const char* kStripes = "LOCKSTEP_STRIPES";

using std::chrono::milliseconds;

milliseconds parse_seconds(const std::string& text) {
  double seconds = 0;
  const auto* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, seconds);
  constexpr double kMost = 1e9;
  if (error != std::errc{} || stopped != end || !(seconds >= 0 && seconds <= kMost)) {
    throw UsageError(fmt::format("{} is {}, expected a number of seconds such as 3 or 0.5",
                                 kHeartbeat, in_quotes(text)));
  }
  return milliseconds(std::llround(1e3 * seconds));
}

}  // namespace

void expect_heartbeat(const std::string& name, milliseconds heartbeat) {
  if (heartbeat >= milliseconds(100) && heartbeat <= std::chrono::hours(24)) return;
  throw UsageError(fmt::format("{} is {} ms, expected 0.1 s to one day", name, heartbeat.count()));
}

void expect_stripes(const std::string& name, int stripes) {
  if (stripes >= 1 && stripes <= kMaxStripes) return;
  throw UsageError(fmt::format("{} is {}, expected 1 to {}", name, stripes, kMaxStripes));
}

std::vector<std::string> NetworkSettings::interfaces() const {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < interface.size();) {
    const auto comma = std::min(interface.find(',', begin), interface.size());
    if (comma > begin) names.push_back(interface.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return names;
}

NetworkSettings network_settings(const Environment& environment) {
  NetworkSettings settings;
  settings.interface = environment.find(kInterface).value_or("");
  if (const auto ports = environment.find(kPorts)) {
    try {
      settings.ports = PortRange::parse(*ports);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", kPorts, error.what()));
    }
  }
  if (const auto heartbeat = environment.find(kHeartbeat)) {
    settings.heartbeat = parse_seconds(*heartbeat);
    expect_heartbeat(kHeartbeat, settings.heartbeat);
  }
  if (const auto encrypts = environment.find(kEncrypt)) {
    if (*encrypts != "0" && *encrypts != "1") {
      throw UsageError(fmt::format("{} is {}, expected 0 or 1", kEncrypt, in_quotes(*encrypts)));
    }
    settings.encrypts = *encrypts == "1";
  }
  if (const auto stripes = environment.find(kStripes)) {
    const auto* const end = stripes->data() + stripes->size();
    const auto [stopped, error] = std::from_chars(stripes->data(), end, settings.stripes);
    if (error != std::errc{} || stopped != end) {
      throw UsageError(
          fmt::format("{} is {}, expected 1 to {}", kStripes, in_quotes(*stripes), kMaxStripes));
    }
    expect_stripes(kStripes, settings.stripes);
  }
  return settings;
}

std::vector<std::pair<std::string, std::string>> variables_of(const NetworkSettings& settings) {
  std::vector<std::pair<std::string, std::string>> variables;
  if (!settings.interface.empty()) variables.emplace_back(kInterface, settings.interface);
  if (settings.ports) variables.emplace_back(kPorts, settings.ports->to_string());
  if (settings.heartbeat != NetworkSettings{}.heartbeat) {
    variables.emplace_back(
        kHeartbeat, fmt::format("{}", static_cast<double>(settings.heartbeat.count()) / 1e3));
  }
  if (settings.encrypts) variables.emplace_back(kEncrypt, "1");
  if (settings.stripes > 0) variables.emplace_back(kStripes, std::to_string(settings.stripes));
  return variables;
}

}  // namespace lockstep
