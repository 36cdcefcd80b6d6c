// One worker from start to end, as the agent sees it: its supervisor, its output, its outcome.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "lockstep/launch/agent.h"
#include "lockstep/launch/rank_log.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep {

/// Ties the clock of events to the one on the wall, once a round, so that the order of events
/// survives a change of the latter.
struct RoundClock {
  std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
  RankOutcome::Time wall = std::chrono::system_clock::now();

  [[nodiscard]] RankOutcome::Time at(std::chrono::steady_clock::time_point time) const {
    return wall + std::chrono::duration_cast<RankOutcome::Time::duration>(time - steady);
  }
};

class Worker {
 public:
  /// Starts it. Throws SystemError.
  Worker(const AgentOptions& options, const WorkerPlan& plan, const RoundClock& clock);

  /// Passes `signal` on. With `to_end`, what happens to it from here on is our doing.
  void send(int signal, std::chrono::steady_clock::time_point now, bool to_end);
  void kill_all(std::chrono::steady_clock::time_point now);

  /// Takes the news of its supervisor. Returns true when it has just ended.
  [[nodiscard]] bool hear();
  /// Shows and writes one piece of output. Returns false when there is none now.
  bool read(OutputStream stream, std::span<char> buffer, Console& console);
  /// Reads what there is, up to a bound that a flood of a process it left behind cannot pass.
  void drain(std::span<char> buffer, Console& console);
  /// Returns true when the supervisor is gone, after everything it left was read.
  [[nodiscard]] bool collect(std::span<char> buffer, Console& console);
  /// Returns true when it was stopped or continued since the last look.
  [[nodiscard]] bool look();
  /// The same of its supervisor: a stopped one passes no signal on.
  [[nodiscard]] bool look_at_supervisor();
  void flush_log() { log_.flush(); }

  [[nodiscard]] bool has_ended() const noexcept { return outcome_.status.has_value(); }
  [[nodiscard]] bool is_gone() const noexcept { return gone_; }
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }
  [[nodiscard]] bool is_supervisor_stopped() const noexcept { return supervisor_stopped_; }
  [[nodiscard]] RankOutcome& outcome() noexcept { return outcome_; }
  [[nodiscard]] const Supervisor& supervisor() const noexcept { return supervisor_; }

 private:
  void take(const SupervisorNews& news);
  void close(OutputStream stream, Console& console);
  void read_crash_record();
  FileDescriptor& pipe(OutputStream stream) {
    return stream == OutputStream::standard_output ? supervisor_.standard_output
                                                   : supervisor_.standard_error;
  }

  const RoundClock& clock_;
  RankOutcome outcome_;
  RankLog log_;
  FileDescriptor crash_;  // a memfd that the worker writes its crash record to
  Supervisor supervisor_;
  std::optional<std::chrono::steady_clock::time_point> told_;
  int traced_looks_ = 0;
  bool stopped_ = false;
  bool supervisor_stopped_ = false;
  bool log_failure_said_ = false;
  bool gone_ = false;
};

}  // namespace lockstep
