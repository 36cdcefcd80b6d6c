// A flight recorder: the last calls of a rank, written to a file after a failure.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/fabric/call.h"

namespace lockstep {

class FlightRecorder {
 public:
  static constexpr std::size_t kCalls = 64;

  void enter(std::uint64_t number, const CallDescriptor& call) noexcept;
  void complete(std::uint64_t number) noexcept;

  /// JSON with the rank, the group, the cause and the calls, oldest first, with their times in
  /// milliseconds.
  [[nodiscard]] std::string to_json(int global_rank, const std::string& group,
                                    const std::string& cause) const;

 private:
  // The kernel's coarse clock, exact to a few milliseconds: reading the exact time costs more than
  // a small call.
  struct Clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<Clock>;
    static constexpr bool is_steady = true;
    static time_point now() noexcept;
  };
  struct Entry {
    std::uint64_t number = 0;  // 0: unused
    CallDescriptor call;
    Clock::time_point entered;
    Clock::time_point completed;  // the epoch if not completed
  };

  std::array<Entry, kCalls> entries_;
};

}  // namespace lockstep
