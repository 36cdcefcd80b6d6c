// Records whether this process has received a stop signal: TERM, INT, USR1 or USR2. The handler
// only records the signal. Run::end_of_step() reacts to it, on all ranks together.
#pragma once

namespace lockstep {

/// While an object exists, the signals are recorded instead of ending the process. The destructor
/// of the last object restores the previous handlers. INT stays ignored if it was ignored (as
/// shells do for background jobs). A second INT or TERM acts as it would without StopSignals, so
/// that a program that hangs in a step can be ended. Within 500 ms of the first, it counts as the
/// same request: timeout(1), and a launcher in a terminal, send two.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  /// The last signal received since the first existing StopSignals was constructed; 0: none.
  [[nodiscard]] int received() const noexcept;
};

}  // namespace lockstep
