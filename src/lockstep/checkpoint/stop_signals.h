// Whether this process was told to stop, by TERM, INT, USR1 or USR2. The handler notes that and
// nothing else: what to do about it is for the end of a step, and for all ranks together.
#pragma once

namespace lockstep {

/// While one lives, the signals are noted instead of ending the process; the last of several to go
/// puts back the handlers of before. INT stays ignored where it is (shells' background jobs want it
/// so). A second INT or TERM acts as it would without StopSignals, which ends a program that hangs
/// in a step. Within 500 ms of the first it counts as the same request: timeout(1), and a launcher
/// beside a terminal, send two.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The last signal that has come since the first StopSignals of those that live was made; 0:
  /// none.
  [[nodiscard]] int received() const noexcept;
};

}  // namespace lockstep
