// What is known of each rank when a round is over. A round is one start of all workers; a restart
// begins the next one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/exit_code.h"

namespace lockstep {

/// Why a worker never became the program: what was tried, and errno.
struct StartFailure {
  enum class Step { descriptors, pin, execute };
  Step step = Step::execute;
  int error_number = 0;
};

struct RankOutcome {
  using Time = std::chrono::system_clock::time_point;

  int rank = 0;
  int node = 0;
  std::string host = {};
  pid_t pid = 0;                                   // 0: never started
  std::optional<ExitStatus> status = {};           // nothing: never started
  std::optional<StartFailure> start_failure = {};  // then `status` says 126, 127 or 125
  Time started = {};
  Time ended = {};                           // taken by its supervisor, so that order holds
  bool told_to_end = false;                  // the launcher sent a signal for it before
  std::string note = {};                     // for example "was stopped (state T)"
  std::string uncaught = {};                 // message and type of an exception nobody caught
  std::vector<std::string> last_lines = {};  // of its output, at most 20
  std::string log_path = {};                 // where all of it is
  std::string crash_record = {};             // as crash_handler.h has it; may be empty
  std::vector<std::string> stack = {};       // the same with names; of the culprit only

  [[nodiscard]] bool failed() const noexcept { return status && !status->succeeded(); }
};

struct RoundOutcome {
  std::vector<RankOutcome> ranks = {};  // the local ones, in the order they were given
  RunCause cause = RunCause::finished;
  int signal = 0;                // the first signal that told the launcher to end; 0: none
  std::string stop_reason = {};  // what Agent::request_stop was given
  std::chrono::milliseconds lasted{0};
};

}  // namespace lockstep
