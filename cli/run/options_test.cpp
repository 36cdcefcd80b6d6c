#include "cli/run/options.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

std::string refusal(const Words& arguments) {
  try {
    (void)parse_run_options(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(RunCommandOptions, WithoutOptionsTheNumberOfRanksIsAutomaticOnOneNode) {
  const auto options = parse_run_options({"./train"});
  EXPECT_EQ(options.ranks, Ranks::automatic);
  EXPECT_EQ(options.nodes.num_nodes, 1);
  EXPECT_EQ(options.nodes.network, NetworkSettings{});
  EXPECT_TRUE(options.pin);
  EXPECT_EQ(options.grace, std::chrono::seconds(30));
  EXPECT_EQ(options.command, (Words{"./train"}));
}

TEST(RunCommandOptions, TheWordsAfterTheProgramAreItsArguments) {
  const auto options = parse_run_options({"-n", "4", "./train", "-n", "9", "--help", "--", "x"});
  EXPECT_EQ(options.num_ranks, 4);
  EXPECT_FALSE(options.help);
  EXPECT_EQ(options.command, (Words{"./train", "-n", "9", "--help", "--", "x"}));
}

TEST(RunCommandOptions, TorchrunsNamesAreAccepted) {
  for (const auto& spelling : {"--nproc-per-node", "--nproc_per_node", "-n"}) {
    EXPECT_EQ(parse_run_options({spelling, "3", "p"}).num_ranks, 3) << spelling;
  }
  EXPECT_EQ(parse_run_options({"--standalone", "--no-python", "--nproc_per_node=2", "p"}).num_ranks,
            2);
  const auto nodes = parse_run_options(
      {"--nnodes=2", "--node_rank=1", "--master_addr=h0", "--master_port", "29400", "p"});
  EXPECT_EQ(nodes.nodes.node_rank, 1);
  EXPECT_EQ(nodes.nodes.rendezvous->host, "h0");
  EXPECT_EQ(nodes.nodes.rendezvous->port, 29400);
}

TEST(RunCommandOptions, RanksAreANumberOrAWord) {
  EXPECT_EQ(parse_run_options({"-n", "gpu", "p"}).ranks, Ranks::per_gpu);
  EXPECT_EQ(parse_run_options({"-n", "cpu", "p"}).ranks, Ranks::per_core);
  EXPECT_EQ(parse_run_options({"-n", "auto", "p"}).ranks, Ranks::automatic);
  for (const char* wrong : {"0", "-1", "4.5", "many", "99999", ""}) {
    EXPECT_NE(refusal({"-n", wrong, "p"}).find("-n is"), std::string::npos) << wrong;
  }
}

TEST(RunCommandOptions, AnUnknownOptionGetsTheNearestMatch) {
  EXPECT_EQ(refusal({"--max-restart=3", "p"}),
            "\"--max-restart=3\" is not an option of lockstep run; did you mean --max-restarts? "
            "`lockstep run --help` lists the options.");
}

TEST(RunCommandOptions, SeveralNodesNeedARendezvousAndANodeRank) {
  EXPECT_NE(refusal({"--nnodes", "2", "p"}).find("--rendezvous HOST:PORT"), std::string::npos);
  EXPECT_NE(refusal({"--nnodes", "2", "--node-rank", "2", "--rendezvous", "h:1", "p"})
                .find("--node-rank is 2, expected 0 to 1"),
            std::string::npos);
}

TEST(RunCommandOptions, TheNetworkOfTheRanksCanBeChosen) {
  const auto network =
      parse_run_options({"--interface", "10.0.0.0/24", "--ports=40000-40100", "--heartbeat",
                         "500ms", "--encrypt", "--stripes", "4", "p"})
          .nodes.network;
  EXPECT_EQ(network, (NetworkSettings{"10.0.0.0/24", PortRange{40000, 40100},
                                      std::chrono::milliseconds(500), /*encrypts=*/true,
                                      /*stripes=*/4}));
  for (const auto* wrong : {"0", "17"}) {
    const auto message = refusal({"--stripes", wrong, "p"});
    EXPECT_NE(message.find("--stripes"), std::string::npos) << message;
    EXPECT_NE(message.find("is not a number from 1 to 16"), std::string::npos) << message;
  }
  EXPECT_NE(refusal({"--ports", "9", "--ports", "8", "p"}), "");
  EXPECT_NE(refusal({"--ports", "x", "p"}).find("--ports: \"x\""), std::string::npos);
  EXPECT_NE(refusal({"--heartbeat", "10ms", "p"}).find("--heartbeat is 10 ms"), std::string::npos);
}

TEST(RunCommandOptions, NoProgramIsAnErrorWithAnExample) {
  EXPECT_NE(refusal({"-n", "2"}).find("lockstep run -n 4 ./my_program"), std::string::npos);
}

TEST(RunCommandOptions, HelpFitsAScreen) {
  EXPECT_TRUE(parse_run_options({"--help"}).help);
  EXPECT_LE(std::ranges::count(run_help(), '\n'), 24);
}

}  // namespace
}  // namespace lockstep::cli
