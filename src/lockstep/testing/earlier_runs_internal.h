// The results of a test's earlier calls of run_ranks_as_processes, so that the children of a later
// call can return them without running the calls again. They are stored in GoogleTest's record of
// the running test, which is empty at the start of every test and every repetition; no global
// variable is needed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/testing/processes.h"

namespace lockstep::testing {

/// The result of one call: outcomes, or the PeerError that it threw.
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

/// All closed records as a file that can be passed to a child process. Throws SystemError.
[[nodiscard]] FileDescriptor earlier_runs_as_file();
/// Record `number` from such a file.
[[nodiscard]] EarlierRun earlier_run_from_file(int descriptor, int number);

}  // namespace lockstep::testing
