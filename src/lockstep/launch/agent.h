// Runs the workers of this machine for one round: starts them, gathers their output, passes signals
// on, and ends them all when one fails.
//
// A round, in steps. All workers are started. The first that fails gives the others
// `limits.report` to end by themselves, then SIGTERM, then `limits.grace`, then SIGKILL. SIGINT,
// SIGTERM, SIGHUP and SIGQUIT to the launcher are passed on and start the same grace; a SIGINT
// after one of these kills at once; SIGUSR1 and SIGUSR2 are passed on and start nothing. A worker
// that is stopped (SIGSTOP, a debugger) is named on the console, and again when it goes on. The
// round is over when every process of every worker is gone.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/console.h"
#include "lockstep/launch/rank_outcome.h"
#include "lockstep/launch/signal_relay.h"
#include "lockstep/launch/stop_policy.h"
#include "lockstep/launch/worker_environment.h"

namespace lockstep {

struct WorkerPlan {
  WorkerIdentity identity = {};
  Environment environment = {};      // as worker_environment makes it
  std::vector<int> processors = {};  // none: not pinned
};

enum class StandardInput { nothing, to_first_worker };

struct AgentOptions {
  std::vector<std::string> command = {};  // program and arguments
  std::vector<WorkerPlan> workers = {};
  StopLimits limits = {};
  std::string host = {};               // for reports
  std::string logs = {};               // the folder of the log files
  int restarts = 0;                    // before this round
  int secret = -1;                     // borrowed: handed on as LOCKSTEP_SECRET_FD
  std::uint64_t descriptor_limit = 0;  // the workers' soft limit; 0: the launcher's
  StandardInput standard_input = StandardInput::nothing;
  std::chrono::milliseconds look{1'000};  // between two looks for stopped workers
};

/// Called on the agent's thread; they must not block.
struct AgentHooks {
  /// Whether ranks have met each other. Those that never did have nothing to report when one fails.
  std::function<bool()> have_met = {};
  std::function<void(const RankOutcome&)> rank_ended = {};
  std::function<void(int rank, bool is_stopped)> rank_stopped = {};
};

class Agent {
 public:
  /// A worker finds the descriptor for its crash record (base/crash_handler.h) and the job's secret
  /// in these variables.
  static constexpr const char* kCrashVariable = "LOCKSTEP_CRASH_FD";
  static constexpr const char* kSecretVariable = "LOCKSTEP_SECRET_FD";

  /// `relay` and `console` outlive the agent. Throws UsageError without a command or a worker.
  Agent(AgentOptions options, const SignalRelay& relay, Console& console, AgentHooks hooks = {});

  /// Runs the round, once. Returns when everything has ended. Throws SystemError when workers
  /// cannot be started; those that were are killed.
  [[nodiscard]] RoundOutcome run();

  /// Ends the round as if a rank had failed: another node's has. Safe from any thread, also before
  /// and after run(); the first reason counts.
  void request_stop(std::string reason);

 private:
  friend class Round;

  AgentOptions options_;
  const SignalRelay& relay_;
  Console& console_;
  AgentHooks hooks_;
  FileDescriptor stop_event_;  // an eventfd: readable once a stop is requested
  std::mutex mutex_;
  std::string stop_reason_;  // mutex_
};

}  // namespace lockstep
