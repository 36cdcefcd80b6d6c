// The lines that a run prints before its first step.
#pragma once

#include <cstdint>
#include <optional>
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
  std::string schedule;               // Schedule::describe()
  std::string lr_reason;              // empty: lr is not scaled
  std::string sharding;               // ShardDecision::reason
  std::optional<std::int64_t> total;  // steps; nullopt: the run's length is a time
  std::int64_t step = 0;              // the number of steps at the start; 0: a new run
};

/// The lines, from model to folder.
[[nodiscard]] std::vector<std::string> start_lines(const SavedConfig& saved, Task& task,
                                                   const ProcessGroup& group,
                                                   const StartFacts& facts);

/// The backend of `group` and the reason for its choice.
[[nodiscard]] std::string backend_text(const ProcessGroup& group);

}  // namespace lockstep::cli
