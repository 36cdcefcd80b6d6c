// One worker of the agent from start to end: its supervisor, its output, its outcome.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "lockstep/launch/agent.h"
#include "lockstep/launch/rank_log.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep {

/// Maps the steady clock to the wall clock, once per round, so that a change of the wall clock does
/// not change the order of events.
struct RoundClock {
  std::chrono::steady_clock::time_point steady = std::chrono::steady_clock::now();
  RankOutcome::Time wall = std::chrono::system_clock::now();

  [[nodiscard]] RankOutcome::Time at(std::chrono::steady_clock::time_point time) const {
    return wall + std::chrono::duration_cast<RankOutcome::Time::duration>(time - steady);
  }
};

class Worker {
 public:
  /// Starts the worker. Throws SystemError.
  Worker(const AgentOptions& options, const WorkerPlan& plan, const RoundClock& clock);

  /// Forwards `signal`. With `to_end`, the launcher counts as the cause of the worker's end.
  void send(int signal, std::chrono::steady_clock::time_point now, bool to_end);
  void kill_all(std::chrono::steady_clock::time_point now);

  /// Receives the messages of its supervisor. Returns true when the worker has just ended.
  [[nodiscard]] bool receive_news();
  /// Shows and logs one piece of output. Returns false when there is none now.
  bool read(OutputStream stream, std::span<char> buffer, Console& console);
  /// Reads the available output, up to a bound: a process that the worker left behind may print
  /// without end.
  void drain(std::span<char> buffer, Console& console);
  /// Returns true when the supervisor has ended and all remaining output was read.
  [[nodiscard]] bool collect(std::span<char> buffer, Console& console);
  /// Checks whether the worker is stopped. Returns true when that changed since the last call.
  [[nodiscard]] bool look();
  /// The same for its supervisor: a stopped one forwards no signals.
  [[nodiscard]] bool look_at_supervisor();
  void flush_log() { log_.flush(); }

  [[nodiscard]] bool has_ended() const noexcept { return outcome_.status.has_value(); }
  [[nodiscard]] bool is_gone() const noexcept { return gone_; }
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_; }
  [[nodiscard]] bool is_supervisor_stopped() const noexcept { return supervisor_stopped_; }
  [[nodiscard]] RankOutcome& outcome() noexcept { return outcome_; }
  [[nodiscard]] const Supervisor& supervisor() const noexcept { return supervisor_; }

 private:
  void apply(const SupervisorNews& news);
  void close(OutputStream stream, Console& console);
  void read_crash_record();
  void note_end();
  FileDescriptor& pipe(OutputStream stream) {
    return stream == OutputStream::standard_output ? supervisor_.standard_output
                                                   : supervisor_.standard_error;
  }

  const RoundClock& clock_;
  RunPages* pages_;  // may be null
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
