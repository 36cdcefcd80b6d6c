// A flight recorder: the last calls of a rank, written to a file after a failure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/base/ticks.h"
#include "lockstep/fabric/call.h"

namespace lockstep {

class FlightRecorder {
 public:
  static constexpr std::size_t kCalls = 64;

  // Both times are ticks: a call of a few hundred nanoseconds notices every read of another clock.
  void enter(std::uint64_t number, const CallDescriptor& call, Ticks at) noexcept {
    auto& entry = entries_[number % kCalls];
    entry.number = number;
    entry.entered = at;
    entry.completed = 0;
    entry.call = call;
  }
  void complete(std::uint64_t number, Ticks at) noexcept {
    auto& entry = entries_[number % kCalls];
    if (entry.number == number) entry.completed = at;
  }

  /// JSON with the rank, the group, the cause and the calls, oldest first, with their times in
  /// milliseconds.
  [[nodiscard]] std::string to_json(int global_rank, const std::string& group,
                                    const std::string& cause) const;

 private:
  struct Entry {
    std::uint64_t number = 0;  // 0: unused
    Ticks entered = 0;
    Ticks completed = 0;  // 0: not completed
    CallDescriptor call;
  };

  std::array<Entry, kCalls> entries_;
};

}  // namespace lockstep
