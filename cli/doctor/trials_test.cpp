#include "cli/doctor/trials.h"

#include <gtest/gtest.h>

#include "cli/doctor/node_report.h"
#include "cli/doctor/probe.h"

namespace lockstep::cli {
namespace {

using namespace std::chrono_literals;

TEST(DoctorTrials, AProgramThatDoesNotEndIsKilledAtItsDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result = run_command_until({"sh", "-c", "echo begun; sleep 60"}, ".",
                                        Environment::of_process(), Deadline::after(300ms));
  EXPECT_EQ(result.code, kTimedOut);
  EXPECT_EQ(result.output, "begun\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  EXPECT_EQ(run_command_until({"sh", "-c", "exit 7"}, ".", Environment::of_process(),
                              Deadline::after(30s))
                .code,
            7);
}

TEST(DoctorTrials, AFailureIsOneLineWithItsReason) {
  const TrialRunner crash = [](const auto&, std::chrono::seconds) {
    return CommandResult{1, "starting\nerror: the sum is wrong\nbye\n"};
  };
  const auto facts = try_all_reduce(crash, "lockstep");
  EXPECT_TRUE(facts.ran);
  EXPECT_FALSE(facts.passed);
  EXPECT_EQ(facts.text, "exit code 1: error: the sum is wrong");
  const TrialRunner hang = [](const auto&, std::chrono::seconds) {
    return CommandResult{kTimedOut, ""};
  };
  EXPECT_NE(try_training(hang, "lockstep").text.find("did not end within"), std::string::npos);
  const TrialRunner signal = [](const auto&, std::chrono::seconds) {
    return CommandResult{128 + 4, "x\n"};
  };
  EXPECT_NE(try_training(signal, "lockstep").text.find("signal 4"), std::string::npos);
}

TEST(DoctorTrials, DifferentReplicasAreAFailureAlthoughTheProgramSucceeds) {
  const TrialRunner silent = [](const auto&, std::chrono::seconds) {
    return CommandResult{0, "Done\n"};
  };
  EXPECT_FALSE(try_training(silent, "lockstep").passed);
}

TEST(DoctorTrials, AProgramThatIsMissingOrDoesNotLoadHasNoLibTorch) {
  const auto run = trial_runner(".", Environment::of_process());
  EXPECT_FALSE(try_torch(run, "/nowhere/lockstep-doctor").started);
  const TrialRunner loader = [](const auto&, std::chrono::seconds) {
    return CommandResult{127,
                         "lockstep-doctor: error while loading shared libraries: libtorch.so: "
                         "cannot open shared object file\n"};
  };
  const auto facts = try_torch(loader, "lockstep-doctor");
  EXPECT_FALSE(facts.started);
  EXPECT_NE(facts.error.find("libtorch.so"), std::string::npos) << facts.error;
  const TrialRunner other = [](const auto&, std::chrono::seconds) {
    return CommandResult{0, "loaded: 2.9.1\nlibrary: /opt/old\ngpus: 2\nnccl: 2.27.3\n"};
  };
  EXPECT_EQ(try_torch(other, "lockstep-doctor").loaded, "2.9.1");
  EXPECT_EQ(try_torch(other, "lockstep-doctor").num_gpus, 2);
}

TEST(DoctorTrials, TheVariablesOfALauncherDoNotReachThem) {
  const auto environment = without_launcher(
      {{"RANK", "1"}, {"LOCKSTEP_STORE", "x"}, {"SLURM_PROCID", "2"}, {"HOME", "/home/me"}});
  EXPECT_FALSE(environment.find("RANK"));
  EXPECT_FALSE(environment.find("LOCKSTEP_STORE"));
  EXPECT_FALSE(environment.find("SLURM_PROCID"));
  EXPECT_EQ(environment.find("HOME"), "/home/me");
}

TEST(DoctorProbe, ReadsThisMachine) {
  const auto facts = probe_system(Environment::of_process(), 3);
  EXPECT_EQ(facts.ranks, 3);
  EXPECT_GT(facts.memory.total, 0u);
  EXPECT_GT(facts.limits.most_descriptors, 0u);
  EXPECT_FALSE(facts.system.empty());
  double rate = 0;
  EXPECT_EQ(probe_loopback(Deadline::after(10s), rate), "");
  EXPECT_GT(rate, 1e6);
  EXPECT_EQ(value_in("a : 1\nPRETTY_NAME=\"x\"\nb:2\n", "b"), "2");
  EXPECT_EQ(value_in("a : 1\n", "c"), "");
}

TEST(DoctorReport, SurvivesTheWayToNodeZero) {
  DoctorReport report{.node = {.host = "h1", .values = {"a", "b"}}, .ranks = 4};
  report.lines = {{"memory", Verdict::red, "none", "buy some"}, {"swap", Verdict::green, "0", ""}};
  const auto copy = report_from_text(to_text(report));
  EXPECT_EQ(copy.node.host, "h1");
  EXPECT_EQ(copy.node.values, report.node.values);
  EXPECT_EQ(copy.ranks, 4);
  EXPECT_EQ(copy.lines, report.lines);
  const auto text = doctor_text({copy}, 1.5, false);
  EXPECT_NE(text.find("fix: buy some"), std::string::npos) << text;
  EXPECT_NE(text.find("1 red, 0 yellow, 1 green, in 1.5 s"), std::string::npos) << text;
  EXPECT_EQ(worst_of(std::vector{copy}), Verdict::red);
}

}  // namespace
}  // namespace lockstep::cli
