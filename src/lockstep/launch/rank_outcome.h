// The outcome of each rank at the end of a round. A round is one start of all workers; a restart
// begins the next round.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/exit_code.h"

namespace lockstep {

/// Why a worker did not execute the program: the action that failed, and errno.
struct StartFailure {
  enum class Action { fork, assign_descriptors, pin, execute };
  Action action = Action::execute;
  int error_number = 0;
};

struct RankOutcome {
  using Time = std::chrono::system_clock::time_point;

  int rank = 0;
  int node = 0;
  std::string host = {};
  pid_t pid = 0;                                   // 0: never started
  std::optional<ExitStatus> status = {};           // nullopt: never started
  std::optional<StartFailure> start_failure = {};  // then `status` is 126, 127 or 125
  Time started = {};
  Time ended = {};                           // as its supervisor saw it, so that the order is right
  bool told_to_end = false;                  // the launcher had sent a signal to end it
  std::string note = {};                     // for example "was stopped when it was killed"
  std::string where = {};                    // "step 812, backward, bucket 4"; empty: unknown
  std::string uncaught = {};                 // message and type of an uncaught exception
  std::vector<std::string> last_lines = {};  // of its output, at most 20
  std::string log_path = {};                 // the file with its complete output
  std::string crash_record = {};             // in the format of crash_handler.h; may be empty
  std::vector<std::string> stack = {};       // the crash record with names; of the culprit only

  [[nodiscard]] bool failed() const noexcept { return status && !status->succeeded(); }
};

struct RoundOutcome {
  std::vector<RankOutcome> ranks = {};  // the local ones, in the order they were given
  RunCause cause = RunCause::finished;
  int signal = 0;                // the first signal that ended the round; 0: none
  std::string stop_reason = {};  // the argument of Agent::request_stop
  std::chrono::milliseconds lasted{0};
};

}  // namespace lockstep
