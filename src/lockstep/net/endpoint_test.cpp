#include "lockstep/net/endpoint.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Endpoint, NamesAndAddressesReadBackAsWritten) {
  for (const auto* text : {"node1:29500", "127.0.0.1:1", "gpu-3.cluster_a.example:65535",
                           "[fd00::2]:29500", "[::1]:80", "[fe80::1%eth0]:7"}) {
    EXPECT_EQ(Endpoint::parse(text).to_string(), text);
  }
  EXPECT_EQ(Endpoint::parse("[fd00::2]:29500"), (Endpoint{"fd00::2", 29500}));
}

TEST(Endpoint, AnythingElseIsRefusedAndQuoted) {
  for (const auto* text : {"",
                           ":",
                           "node1",
                           "node1:",
                           ":29500",
                           "node1:0",
                           "node1:65536",
                           "node1:-1",
                           "node1:+1",
                           "node1: 1",
                           "node1:1x",
                           "fd00::2:29500",
                           "[fd00::2]",
                           "[fd00::2]29500",
                           "[node1]:29500",
                           "[]:1",
                           "[fd00::2:1",
                           "fd00::2]:1",
                           "no de:1",
                           "node/1:1",
                           "tcp://node1:1"}) {
    try {
      (void)Endpoint::parse(text);
      ADD_FAILURE() << text << " was accepted as an endpoint";
    } catch (const UsageError& error) {
      const std::string said = error.what();
      EXPECT_EQ(said.rfind("\"" + std::string(text) + "\" is not a valid endpoint", 0), 0u) << said;
    }
  }
}

TEST(Endpoint, ControlCharactersAreEscapedAndLongTextIsCut) {
  const auto text = "\x1b[2J" + std::string(1000, 'x');
  try {
    (void)Endpoint::parse(text);
    FAIL() << "a thousand letters were accepted as an endpoint";
  } catch (const UsageError& error) {
    const std::string said = error.what();
    EXPECT_EQ(said.rfind("\"\\x1b[2Jxxx", 0), 0u) << said;
    EXPECT_LT(said.size(), 400u);
  }
}

}  // namespace
}  // namespace lockstep
