// Runs the workers of this machine for one round: starts them, collects their output, forwards
// signals, and ends all of them when one fails.
//
// A round, in steps. All workers are started. After the first failure the others have
// `limits.report` to end by themselves; then they get SIGTERM, and `limits.grace` later SIGKILL.
// SIGINT, SIGTERM, SIGHUP and SIGQUIT to the launcher are forwarded and start the same grace; a
// SIGINT after one of these kills at once. SIGUSR1 and SIGUSR2 are only forwarded. A worker that is
// stopped (SIGSTOP, a debugger) is named on the console, and again when it continues. The round is
// over when every process of every worker has ended.
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
#include "lockstep/trace/run_pages.h"

namespace lockstep {

struct WorkerPlan {
  WorkerIdentity identity = {};
  Environment environment = {};      // the result of worker_environment()
  std::vector<int> processors = {};  // empty: not pinned
};

enum class StandardInput { nothing, to_first_worker };

struct AgentOptions {
  std::vector<std::string> command = {};  // program and arguments
  std::vector<WorkerPlan> workers = {};
  StopLimits limits = {};
  std::string host = {};               // the host name, for reports
  std::string logs = {};               // the folder of the log files
  int restarts = 0;                    // before this round
  int secret = -1;                     // not owned; passed on as LOCKSTEP_SECRET_FD
  RunPages* pages = nullptr;           // not owned; passed on as LOCKSTEP_PAGES_FD
  std::uint64_t descriptor_limit = 0;  // the workers' soft limit; 0: that of the launcher
  StandardInput standard_input = StandardInput::nothing;
  std::chrono::milliseconds look{1'000};  // between two checks for stopped workers
};

/// Called on the agent's thread; they must not block.
struct AgentHooks {
  /// Whether the ranks have met. If not, `limits.report` is skipped: they have nothing to report.
  std::function<bool()> have_met = {};
  std::function<void(const RankOutcome&)> rank_ended = {};
  std::function<void(int rank, bool is_stopped)> rank_stopped = {};
};

class Agent {
 public:
  /// The variables that give a worker the descriptors for its crash record (base/crash_handler.h),
  /// of the job's secret and of the pages of the ranks (trace/run_pages.h).
  static constexpr const char* kCrashVariable = "LOCKSTEP_CRASH_FD";
  static constexpr const char* kSecretVariable = "LOCKSTEP_SECRET_FD";
  static constexpr const char* kPagesVariable = "LOCKSTEP_PAGES_FD";

  /// `relay` and `console` must outlive the agent. Throws UsageError without a command or a worker.
  Agent(AgentOptions options, const SignalRelay& relay, Console& console, AgentHooks hooks = {});

  /// Runs the round. Call it once. Returns when all workers have ended. Throws SystemError when a
  /// worker does not start; those already started are killed.
  [[nodiscard]] RoundOutcome run();

  /// Ends the round because a rank of another node has failed. Thread-safe, also before and after
  /// run(); the first reason counts.
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
