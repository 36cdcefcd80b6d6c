#include "lockstep/rendezvous/network_settings.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TEST(NetworkSettings, WithoutVariablesAreTheDefaults) {
  const auto settings = network_settings(Environment{});
  EXPECT_EQ(settings.interface, "");
  EXPECT_FALSE(settings.ports);
  EXPECT_EQ(settings.heartbeat, 3000ms);
  EXPECT_FALSE(settings.encrypts);
  EXPECT_TRUE(variables_of(settings).empty());
}

TEST(NetworkSettings, VariablesAreReadAsWritten) {
  for (const auto heartbeat : {100ms, 2500ms, 3000ms, 86'400'000ms}) {
    const NetworkSettings settings{"10.0.0.0/24", PortRange{40000, 40100}, heartbeat,
                                   heartbeat > 1s, heartbeat > 1s ? 4 : 0};
    Environment environment{};
    for (const auto& [name, value] : variables_of(settings)) environment.set(name, value);
    EXPECT_EQ(network_settings(environment), settings);
  }
}

TEST(NetworkSettings, SeveralInterfacesAreSeparatedByCommas) {
  EXPECT_TRUE(NetworkSettings{}.interfaces().empty());
  EXPECT_EQ(NetworkSettings{.interface = "ib0"}.interfaces(), std::vector<std::string>{"ib0"});
  const std::vector<std::string> both{"ib0", "10.1.0.0/16"};
  EXPECT_EQ(NetworkSettings{.interface = "ib0,10.1.0.0/16"}.interfaces(), both);
}

TEST(NetworkSettings, AnInvalidValueIsRefusedWithItsVariable) {
  const auto refusal = [](const char* name, const char* value) -> std::string {
    try {
      (void)network_settings(Environment{{name, value}});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(refusal("LOCKSTEP_PORTS", "9-1").starts_with("LOCKSTEP_PORTS: \"9-1\""));
  EXPECT_EQ(refusal("LOCKSTEP_ENCRYPT", "yes"), "LOCKSTEP_ENCRYPT is \"yes\", expected 0 or 1");
  for (const char* value : {"0", "17", "-1", "x", "4x"}) {
    EXPECT_TRUE(refusal("LOCKSTEP_STRIPES", value).starts_with("LOCKSTEP_STRIPES is")) << value;
  }
  for (const char* value : {"3s", "-1", "0", "0.05", "100000", "inf", "nan", "1e300", "x"}) {
    EXPECT_TRUE(refusal("LOCKSTEP_HEARTBEAT", value).starts_with("LOCKSTEP_HEARTBEAT is")) << value;
  }
}

}  // namespace
}  // namespace lockstep
