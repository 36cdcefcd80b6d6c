#include "cli/doctor/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "cli/doctor/all_reduce_rank.h"
#include "cli/doctor/probe.h"
#include "lockstep/machine/hidden_sve.h"

namespace lockstep::cli {
namespace {

using std::chrono::seconds;

constexpr seconds kTorchLimit{15};
constexpr seconds kToolLimit{5};
constexpr seconds kAllReduceLimit{15};
constexpr seconds kTrainingLimit{30};
constexpr seconds kVerifyLimit{10};

// The line of the output that says why: the last one that mentions an error, else the last one.
std::string reason_in(const std::string& output) {
  std::istringstream lines(output);
  std::string last;
  std::string reason;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    last = line;
    for (const auto* word : {"rror", "cannot", "failed", "Illegal"}) {
      if (line.find(word) != std::string::npos) reason = line;
    }
  }
  return reason.empty() ? last : reason;
}

std::string failure_text(const CommandResult& result, seconds limit) {
  if (result.code == kTimedOut) return fmt::format("did not end within {} s", limit.count());
  if (result.code > 128) {
    return fmt::format("ended by signal {}: {}", result.code - 128, reason_in(result.output));
  }
  return fmt::format("exit code {}: {}", result.code, reason_in(result.output));
}

// Runs `words`; nullopt if they passed, else the failure.
std::optional<std::string> try_run(const TrialRunner& run, const std::vector<std::string>& words,
                                   seconds limit, std::string& output) {
  const auto result = run(words, limit);
  output = result.output;
  if (result.code == 0) return std::nullopt;
  return failure_text(result, limit);
}

template <typename Trial>
TrialFacts timed(Trial trial) {
  const auto begin = std::chrono::steady_clock::now();
  TrialFacts facts = trial();
  facts.ran = true;
  facts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return facts;
}

}  // namespace

TrialRunner trial_runner(const std::string& folder, const Environment& environment) {
  auto variables = without_launcher(environment);
  variables.set("XDG_CACHE_HOME", folder);  // the trials leave nothing behind
  return [folder, variables](const std::vector<std::string>& words, seconds limit) {
    return run_command_until(words, folder, variables, Deadline::after(limit));
  };
}

TorchFacts try_torch(const TrialRunner& run, const std::string& program) {
  TorchFacts facts;
  std::string output;
  if (const auto failure = try_run(run, {program}, kTorchLimit, output)) {
    facts.error = *failure;
    return facts;
  }
  facts.started = true;
  facts.loaded = value_in(output, "loaded");
  facts.library = value_in(output, "library");
  facts.nccl = value_in(output, "nccl");
  facts.num_gpus = std::atoi(value_in(output, "gpus").c_str());
  return facts;
}

std::string find_mpi(const TrialRunner& run) {
  const auto result = run({"mpirun", "--version"}, kToolLimit);
  return result.code == 0 ? result.output.substr(0, result.output.find('\n')) : "";
}

TrialFacts try_all_reduce(const TrialRunner& run, const std::string& command) {
  return timed([&]() -> TrialFacts {
    std::string output;
    const auto failure = try_run(run,
                                 {command, "run", "-n", "2", "--allow-shared-gpu", "--run-dir",
                                  "all-reduce", command, "doctor", kAllReduceRank},
                                 kAllReduceLimit, output);
    if (failure) return {.text = *failure};
    const std::string mark = std::string(kAllReduceResult) + ": ";  // after the rank's prefix
    const auto at = output.find(mark);
    if (at == std::string::npos) return {.text = "the ranks printed no result"};
    const auto from = at + mark.size();
    return {.passed = true, .text = output.substr(from, output.find('\n', from) - from)};
  });
}

TrialFacts try_training(const TrialRunner& run, const std::string& command) {
  return timed([&]() -> TrialFacts {
    std::string output;
    auto failure = try_run(run,
                           {command, "train", "gpt", "--debug-small", "-n", "2", "--device", "cpu",
                            "--steps", "20", "--run", "training", "--color", "never"},
                           kTrainingLimit, output);
    if (failure) return {.text = *failure};
    const auto at = output.find("bit-identical on 2 ranks");
    if (at == std::string::npos) return {.text = "the replicas of two ranks differ"};
    auto text = "20 steps, replicas " + output.substr(at, output.find('\n', at) - at);
    failure = try_run(run, {command, "ckpt", "verify", "training"}, kVerifyLimit, output);
    if (failure) return {.text = "checkpoint: " + *failure};
    return {.passed = true, .text = text + ", checkpoint valid"};
  });
}

Environment without_launcher(Environment environment) {
  constexpr std::array<std::string_view, 4> kPrefixes{"LOCKSTEP_", "TORCHELASTIC_", "SLURM_",
                                                      "OMPI_COMM_"};
  constexpr std::array<std::string_view, 12> kNames{
      "RANK",       "LOCAL_RANK",  "WORLD_SIZE",      "LOCAL_WORLD_SIZE",
      "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",     "PMI_RANK",
      "PMI_SIZE",   "ROLE_RANK",   "ROLE_WORLD_SIZE", "OMP_NUM_THREADS"};
  for (const auto& line : environment.lines()) {
    const auto name = line.substr(0, line.find('='));
    const bool has_prefix = std::ranges::any_of(
        kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (has_prefix || std::ranges::find(kNames, name) != kNames.end()) environment.remove(name);
  }
  set_plain_processor(environment);
  return environment;
}

}  // namespace lockstep::cli
