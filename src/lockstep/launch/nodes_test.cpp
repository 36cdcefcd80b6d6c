// Launchers as threads of one process.
#include "lockstep/launch/nodes.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/net/listener.h"
#include "lockstep/testing/soon.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using testing::Rank;
using testing::soon;

// A port that is free now.
Endpoint free_endpoint() { return Listener::tcp("127.0.0.1").endpoint(); }

NodesOptions options_of(const Endpoint& rendezvous, int node, int num_nodes) {
  return {.rendezvous = rendezvous,
          .node = node,
          .num_nodes = num_nodes,
          .local_size = node + 1,
          .job = "job",
          .command = {"program"}};
}

Secret same_secret() {
  const std::array<std::byte, Secret::kBytes> bytes{};
  return Secret::from_bytes(bytes);
}

NodeReport failed_on(int node, std::chrono::milliseconds ended) {
  RankOutcome rank;
  rank.rank = 10 * node;
  rank.node = node;
  rank.status = ExitStatus::exited(node);
  rank.ended = RankOutcome::Time(ended);
  return {.cause = RunCause::rank_failed, .culprit = rank};
}

TEST(Nodes, EveryNodeLearnsTheReportsThatSayWhyTheRoundEnded) {
  const auto rendezvous = free_endpoint();
  testing::run_ranks_as_threads(4, [&](Rank& self) {
    const int node = self.rank();
    Nodes nodes(options_of(rendezvous, node, 4), same_secret(), soon());
    EXPECT_EQ(nodes.size(), 1 + 2 + 3 + 4);
    EXPECT_EQ(nodes.first_rank(), node * (node + 1) / 2);
    // Nodes 1 and 3 failed, node 3 first; the others were told to end.
    auto mine = node % 2 == 1 ? failed_on(node, 1000ms - 100ms * node) : NodeReport{};
    if (node == 2) mine.cause = RunCause::peer_node;
    const auto reports = nodes.gather(0, mine);
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_EQ(reports[0].culprit.value().rank, 30);
    EXPECT_EQ(reports[1].culprit.value().rank, 10);
    EXPECT_EQ(reports[0].culprit.value().status, ExitStatus::exited(3));
    EXPECT_EQ(nodes.agree_on_restart(0, std::nullopt), std::nullopt);
  });
}

TEST(Nodes, ReportsAreLimitedAndTheFirstFailureIsAmongThem) {
  constexpr int num_nodes = static_cast<int>(kMostReports) + 3;
  const auto rendezvous = free_endpoint();
  testing::run_ranks_as_threads(num_nodes, [&](Rank& self) {
    const int node = self.rank();
    Nodes nodes(options_of(rendezvous, node, num_nodes), same_secret(), soon());
    const auto reports = nodes.gather(0, failed_on(node, node == num_nodes - 1 ? 1ms : 1000ms));
    ASSERT_EQ(reports.size(), kMostReports);
    EXPECT_EQ(reports[0].culprit.value().node, num_nodes - 1);
    (void)nodes.agree_on_restart(0, std::nullopt);
  });
}

TEST(Nodes, AMissingNodeIsAnnouncedUntilItArrives) {
  auto options = options_of(free_endpoint(), 0, 2);
  std::vector<std::string> notices;
  std::jthread late;
  options.notice = [&](const std::string& text) {
    notices.push_back(text);
    if (notices.size() != 2) return;
    late = std::jthread([&] {
      Nodes nodes(options_of(options.rendezvous, 1, 2), same_secret(), soon());
      EXPECT_EQ(nodes.size(), 3);
      (void)nodes.agree_on_restart(0, std::nullopt);
    });
  };
  options.notice_every = 20ms;
  Nodes nodes(options, same_secret(), soon());
  EXPECT_EQ(nodes.size(), 3);
  EXPECT_EQ(notices.at(0), "waiting for node 1 of 2 at " + options.rendezvous.to_string() +
                               ", which no other machine can reach");
  (void)nodes.agree_on_restart(0, std::nullopt);
  late.join();
}

TEST(Nodes, ANodeThatWaitsForTheFirstSaysWhere) {
  auto options = options_of(free_endpoint(), 1, 2);
  std::vector<std::string> notices;
  std::jthread late;
  options.notice = [&](const std::string& text) {
    notices.push_back(text);
    if (late.joinable()) return;
    late = std::jthread([&] {
      Nodes nodes(options_of(options.rendezvous, 0, 2), same_secret(), soon());
      (void)nodes.agree_on_restart(0, std::nullopt);
    });
  };
  options.notice_every = 20ms;
  Nodes nodes(options, same_secret(), soon());
  EXPECT_EQ(nodes.size(), 3);
  EXPECT_TRUE(
      notices.at(0).starts_with("node 1 waits for node 0 at " + options.rendezvous.to_string()))
      << notices.at(0);
  (void)nodes.agree_on_restart(0, std::nullopt);
  late.join();
}

TEST(Nodes, AfterTheTimeoutTheMessageSaysWhatToCheck) {
  const auto refusal = [](int node) -> std::string {
    const auto options = options_of(free_endpoint(), node, 3);
    try {
      const Nodes nodes(options, same_secret(), Deadline::after(300ms));
    } catch (const PeerError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal(1).find("node 1 cannot reach node 0 at 127.0.0.1:"), std::string::npos);
  EXPECT_NE(refusal(1).find("Check on that machine"), std::string::npos);
  const auto of_first = refusal(0);
  EXPECT_NE(of_first.find("nodes 1-2 of 3 did not arrive at 127.0.0.1:"), std::string::npos)
      << of_first;
}

}  // namespace
}  // namespace lockstep
