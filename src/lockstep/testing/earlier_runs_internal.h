// What a test's earlier calls of run_ranks_as_processes gave, so that the children of a later call
// can pass them without running them again. GoogleTest's record of the running test keeps it: that
// starts empty for every test and every repetition, and needs no global of ours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/testing/processes.h"

namespace lockstep::testing {

/// What one call gave: outcomes, or the PeerError it threw.
struct EarlierRun {
  std::vector<RankOutcome> outcomes;
  std::optional<std::string> error;
  int error_rank = -1;
};

/// Opens the record of the next call of the running test and returns its number, counted from 1.
/// Throws UsageError outside of a test, and inside another call that has not ended.
[[nodiscard]] int begin_run();
/// Closes the record of call `number`.
void end_run(int number, const EarlierRun& run);

/// All closed records as a file that a child process can be given. Throws SystemError.
[[nodiscard]] FileDescriptor earlier_runs_as_file();
/// Record `number` from such a file.
[[nodiscard]] EarlierRun earlier_run_from_file(int descriptor, int number);

}  // namespace lockstep::testing
