// What a run says of itself before its first step.
#pragma once

#include <string>
#include <vector>

#include "cli/train/program/setup.h"
#include "cli/train/program/task.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep::cli {

struct StartFacts {
  std::string folder;
  BatchSizes sizes = {};
  std::int64_t steps_per_epoch = 0;
  std::string schedule;     // Schedule::describe()
  std::string rate_reason;  // empty: the rate is as given
  std::int64_t step = 0;    // the steps that were done before
};

/// The lines, from model to folder.
[[nodiscard]] std::vector<std::string> start_lines(const SavedConfig& saved, Task& task,
                                                   const ProcessGroup& group,
                                                   const StartFacts& facts);

/// How the gradients of `group` travel: the only place that says so.
[[nodiscard]] std::string backend_text(const ProcessGroup& group);

}  // namespace lockstep::cli
