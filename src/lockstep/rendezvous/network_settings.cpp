#include "lockstep/rendezvous/network_settings.h"

#include <fmt/format.h>

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
  return variables;
}

}  // namespace lockstep
