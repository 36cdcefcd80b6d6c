// A worker process with its supervisor: a small process between launcher and worker that ends the
// worker and its children when the launcher has ended.
//
//   launcher ── socket pair ── supervisor (own session) ── worker (own process group) ── …
//
// The launcher sends signals over the socket pair; the supervisor reports the end of the worker.
// When the launcher ends, for whatever reason, its end of the socket closes: the supervisor sends
// SIGTERM to all processes of its session and kills the remaining ones a second later. The
// supervisor adopts orphans of the worker and reaps them. A worker whose supervisor is killed dies
// with it.
//
// When the worker has ended, the remaining processes of its session get SIGTERM, and SIGKILL after
// `linger`. A process that calls setsid(2) has left the session and may outlive the launcher.
// Signals are forwarded to the worker only: the worker decides about its children, and a data
// loader process must continue while a checkpoint is written.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/rank_outcome.h"

namespace lockstep {

struct SupervisedCommand {
  std::vector<std::string> command;  // the first is looked up in the environment's PATH
  Environment environment;
  std::vector<int> processors = {};   // to run on; empty: those of the launcher
  int standard_input = -1;            // not owned; negative: /dev/null
  std::vector<int> descriptors = {};  // not owned; 3, 4, … in the worker, which gets no others
  std::chrono::milliseconds linger{5'000};
  std::uint64_t descriptor_limit = 0;  // the worker's soft limit; 0: that of the caller
};

/// The messages of a supervisor.
struct WorkerStarted {
  pid_t pid = 0;
};
struct WorkerEnded {
  ExitStatus status;
  std::chrono::steady_clock::time_point at;  // when the supervisor saw it, a moment later
};
using SupervisorNews = std::variant<WorkerStarted, StartFailure, WorkerEnded>;

class Supervisor {
 public:
  static constexpr int kFirstDescriptor = 3;

  /// Starts supervisor and worker. Returns before the worker executes its program; try_receive()
  /// reports a failure of that. Throws UsageError for an empty command, SystemError when a system
  /// call fails.
  explicit Supervisor(const SupervisedCommand& command);
  Supervisor(Supervisor&&) noexcept = default;
  Supervisor& operator=(Supervisor&&) = delete;
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  /// Kills all remaining processes and reaps the supervisor; waits a few seconds at most.
  ~Supervisor();

  /// Forwards `signal` to the worker, if it still runs.
  void send(int signal) const noexcept;
  /// Makes the supervisor kill the worker's whole session now.
  void kill_all() const noexcept;
  /// Kills the worker's whole session and the supervisor directly: the supervisor may be stopped.
  void force() const noexcept;
  /// The next message; nullopt without one.
  [[nodiscard]] std::optional<SupervisorNews> try_receive();
  /// Returns true once the supervisor and the session have ended, and reaps the supervisor. If the
  /// supervisor was killed, this kills the session.
  [[nodiscard]] bool try_collect();

  /// Descriptors for poll(2): socket() is readable when there is a message, process() when the
  /// supervisor has ended.
  [[nodiscard]] int socket() const noexcept { return socket_.number(); }
  [[nodiscard]] int process() const noexcept { return process_.number(); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// The pipes with the worker's output; non-blocking. The caller may move them away.
  FileDescriptor standard_output;
  FileDescriptor standard_error;

 private:
  FileDescriptor socket_;   // the launcher's end
  FileDescriptor process_;  // a pidfd of the supervisor
  pid_t pid_ = -1;          // of the supervisor; also the id of its session
  bool collected_ = false;
};

}  // namespace lockstep
