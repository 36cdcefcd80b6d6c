#include "cli/doctor/visit.h"

#include <gtest/gtest.h>

#include "cli/doctor/checks.h"
#include "lockstep/net/socket.h"

namespace lockstep::cli {
namespace {

using namespace std::chrono_literals;

Deadline soon() { return Deadline::after(10s); }

TEST(Visit, FindsTheDifferenceOfTheClocksWithinItsError) {
  for (const auto ahead : {0ns, 2'500'000'000ns, -90'000'000'000ns}) {
    const VisitHost host("127.0.0.1", [ahead] {
      return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()) + ahead;
    });
    const auto link = visit(host.invitation(), VisitKind::measure, soon());
    EXPECT_EQ(link.failure, "");
    const double expected = -std::chrono::duration<double>(ahead).count();
    EXPECT_NEAR(link.clock_skew, expected, link.clock_error + 1e-3);  // the clock may be adjusted
    EXPECT_LT(link.clock_error, 1.0);
    EXPECT_GT(link.bytes_per_second, 1e6);
  }
}

TEST(Visit, AHostThatIsNotReachedIsAFailureWithItsAddress) {
  std::string invitation;
  {
    const VisitHost host("127.0.0.1");
    invitation = host.invitation();
  }
  const auto link = visit(invitation, VisitKind::knock, soon());
  EXPECT_NE(link.failure.find(invitation.substr(0, invitation.find(' '))), std::string::npos)
      << link.failure;
  DoctorFacts facts;
  facts.link = link;
  for (const auto& line : check_node(facts)) {
    EXPECT_EQ(line.verdict == Verdict::red && line.fix.find("ip_local_port_range") != line.fix.npos,
              line.name == "ports")
        << line.name;
  }
}

// A port that a firewall blocks: connections are neither accepted nor refused.
TEST(Visit, ASilentPortEndsAtTheDeadline) {
  const auto silent = Listener::tcp("127.0.0.1");  // never accepts
  const auto begin = std::chrono::steady_clock::now();
  const auto link =
      visit(silent.endpoint().to_string() + " token", VisitKind::knock, Deadline::after(500ms));
  EXPECT_NE(link.failure, "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(Visit, AStrangerGetsNoAnswer) {
  const VisitHost host("127.0.0.1");
  const auto address = host.invitation().substr(0, host.invitation().find(' '));
  const auto link = visit(address + " " + std::string(32, 'x'), VisitKind::knock, soon());
  EXPECT_NE(link.failure, "");
  EXPECT_EQ(visit(host.invitation(), VisitKind::knock, soon()).failure, "");
}

}  // namespace
}  // namespace lockstep::cli
