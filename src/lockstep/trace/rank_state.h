// What the page of a rank says at one moment, as a value.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/trace/rank_page.h"
#include "lockstep/trace/step_split.h"

namespace lockstep {

enum class RankStanding : std::uint8_t { absent, running, stopped, ended };

/// "running", "stopped" (SIGSTOP, a debugger), "ended"; "absent" for a rank that is not started or
/// whose node sends no news.
[[nodiscard]] std::string to_string(RankStanding standing);

/// The last collective call of a rank.
struct RankCall {
  int kind = 0;  // a Collective (fabric/call.h)
  std::uint64_t number = 0;
  std::string name = {};
  bool has_ended = false;
  std::chrono::nanoseconds age{0};  // since it began

  friend bool operator==(const RankCall&, const RankCall&) = default;
};

struct RankState {
  int rank = 0;
  int node = 0;
  std::string host = {};
  RankStanding standing = RankStanding::absent;
  int status = 0;  // of waitpid(2), once it has ended
  int pid = 0;     // 0: init() was not called
  std::uint64_t memory_bytes = 0;

  std::optional<std::int64_t> step = {};  // nullopt: page().step() was not called
  StepPart part = StepPart::other;
  std::optional<int> bucket = {};
  std::chrono::nanoseconds age{0};              // since part or bucket changed
  std::chrono::nanoseconds step_age{0};         // since the step began
  std::optional<double> steps_per_second = {};  // mean since the first step
  std::optional<RankCall> call = {};

  friend bool operator==(const RankState&, const RankState&) = default;
};

/// The state at the time `now` of RankPage::nanoseconds_now(). May be called while the rank writes.
[[nodiscard]] RankState read_page(const RankPage::Words& page, int rank, std::int64_t now);

/// "step 812, backward, bucket 4"; "before its first step, call \"parameters\"" without a step;
/// empty if init() was not called.
[[nodiscard]] std::string where_is(const RankState& state);

/// For people: "forward", "communication" for StepPart::exposed, "between two parts" for other.
[[nodiscard]] std::string part_in_words(StepPart part);

}  // namespace lockstep
