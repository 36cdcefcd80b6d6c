// The trials of `lockstep doctor`: parts of lockstep that run as separate processes, so that a
// crash or a hang of one is a line of the report. Each is killed at its deadline.
#pragma once

#include <string>

#include "cli/command.h"
#include "cli/doctor/facts.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

/// What the trials run: run_command_until, or its replacement in a test.
using TrialRunner =
    std::function<CommandResult(const std::vector<std::string>& words, std::chrono::seconds limit)>;

/// The runner of this process: in `folder`, with `environment`.
[[nodiscard]] TrialRunner trial_runner(const std::string& folder, const Environment& environment);

/// The version of LibTorch that its programs load; `program` is the path of lockstep-doctor.
[[nodiscard]] TorchFacts try_torch(const TrialRunner& run, const std::string& program);
/// The first line of `mpirun --version`; empty when it is not installed.
[[nodiscard]] std::string find_mpi(const TrialRunner& run);
/// An all-reduce of two ranks; the sum is compared with the exact one. `command` is the path of
/// lockstep.
[[nodiscard]] TrialFacts try_all_reduce(const TrialRunner& run, const std::string& command);
/// 20 steps of a small GPT on two ranks; replicas must be bit-identical and the checkpoint valid.
[[nodiscard]] TrialFacts try_training(const TrialRunner& run, const std::string& command);

/// Without the variables of a launcher: the trials have launchers of their own.
[[nodiscard]] Environment without_launcher(Environment environment);

}  // namespace lockstep::cli
