// One worker process under a supervisor: a small process between launcher and worker that outlives
// the launcher just long enough to end what the launcher started.
//
//   launcher ── line ── supervisor (a session of its own) ── worker (a process group of its own) ──
//   …
//
// The line is a socket pair. The launcher sends signals along it; the supervisor reports the
// worker's end. When the launcher is gone, whatever ended it, the line closes: the supervisor tells
// everything in its session to end (SIGTERM) and kills what is left a second later. The supervisor
// adopts orphans of the worker and collects them. A worker whose supervisor is killed dies with it.
//
// When the worker has ended, what is left of its session is told to end, and killed after
// `linger`. A process that calls setsid(2) has left the session on purpose: it is out of reach and
// may outlive the launcher. Signals that are passed on go to the worker alone: it knows its
// children, and a data loader must live on while a checkpoint is written.
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
  std::vector<std::string> command;  // the first is sought in the environment's PATH
  Environment environment;
  std::vector<int> processors = {};  // to run on; none: wherever the launcher may
  int standard_input = -1;           // a descriptor of the caller's; negative: /dev/null
  std::vector<int> descriptors = {};  // of the caller's: 3, 4, … in the worker, which has no others
  std::chrono::milliseconds linger{5'000};
  std::uint64_t descriptor_limit = 0;  // the worker's soft limit of descriptors; 0: the caller's
};

/// What a supervisor says.
struct WorkerStarted {
  pid_t pid = 0;
};
struct WorkerEnded {
  ExitStatus status;
  std::chrono::steady_clock::time_point at;  // when the supervisor saw it, a moment after the fact
};
using SupervisorNews = std::variant<WorkerStarted, StartFailure, WorkerEnded>;

class Supervisor {
 public:
  static constexpr int kFirstDescriptor = 3;

  /// Starts supervisor and worker. Returns before the worker executes its program; a failure to do
  /// so is news. Throws UsageError for an empty command, SystemError when the machine refuses.
  explicit Supervisor(const SupervisedCommand& command);
  Supervisor(Supervisor&&) noexcept = default;
  Supervisor& operator=(Supervisor&&) = delete;
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  /// Kills everything that is left, and collects the supervisor; waits for some seconds at most.
  ~Supervisor();

  /// Passes `signal` on to the worker, if it still runs.
  void send(int signal) const noexcept;
  /// Kills the worker's whole session now.
  void kill_all() const noexcept;
  /// Kills the worker's whole session and the supervisor, without the supervisor's help: it may be
  /// stopped.
  void force() const noexcept;
  /// The next piece of news, if there is one.
  [[nodiscard]] std::optional<SupervisorNews> try_receive();
  /// True once the supervisor is gone, and with it the session. If somebody killed the supervisor,
  /// this kills the session.
  [[nodiscard]] bool try_collect();

  /// Readable when there is news; and when the supervisor is gone.
  [[nodiscard]] int line() const noexcept { return line_.number(); }
  [[nodiscard]] int process() const noexcept { return process_.number(); }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Where the worker's output arrives; non-blocking. The caller may take them away.
  FileDescriptor standard_output;
  FileDescriptor standard_error;

 private:
  FileDescriptor line_;     // the launcher's end
  FileDescriptor process_;  // a pidfd of the supervisor
  pid_t pid_ = -1;          // of the supervisor; also the number of its session
  bool collected_ = false;
};

}  // namespace lockstep
