#include "lockstep/net/port_range.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(PortRange, IsReadAsWritten) {
  EXPECT_EQ(PortRange::parse("40000-40100"), (PortRange{40000, 40100}));
  EXPECT_EQ(PortRange::parse("1-65535").to_string(), "1-65535");
  EXPECT_EQ(PortRange::parse("7"), (PortRange{7, 7}));
}

TEST(PortRange, EverythingElseIsRefused) {
  for (const char* text : {"", "-", "0-5", "5-", "-5", "40100-40000", "1-65536", "1-2-3", " 1-2",
                           "1-2 ", "http", "0"}) {
    EXPECT_THROW((void)PortRange::parse(text), UsageError) << text;
  }
}

}  // namespace
}  // namespace lockstep
