// A profile: the events of all ranks as one file in the JSON format of Chrome's trace viewer, which
// Perfetto (ui.perfetto.dev) opens too. A rank is a process of the viewer, a lane is a thread. An
// arrow leads from the rank that entered the all-reduce of a bucket last to each rank that waited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "lockstep/trace/event.h"
#include "lockstep/trace/trace.h"

namespace lockstep {

/// An event with times in nanoseconds and its name as an index.
struct ProfileEvent {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t step = 0;
  std::int64_t bytes = 0;
  double value = 0;
  std::int32_t index = 0;
  EventKind kind = EventKind::span;
  Lane lane = Lane::compute;
  std::uint16_t name = 0;  // of RankProfile::names; 0: the name of the kind

  friend bool operator==(const ProfileEvent&, const ProfileEvent&) = default;
};

/// The events of one rank, on the clock of rank 0.
struct RankProfile {
  int rank = 0;
  std::string host = {};
  std::int64_t num_lost = 0;
  std::int64_t clock_error_ns = 0;  // against rank 0
  std::vector<std::string> names = {""};
  std::vector<ProfileEvent> events = {};

  /// Adds events that drain() has just returned. `clock_offset_ns` is added to their times.
  void add(std::span<const TraceEvent> drained, std::int64_t clock_offset_ns);

  friend bool operator==(const RankProfile&, const RankProfile&) = default;
};

/// A profile as bytes, to be sent to rank 0; and back. The latter throws UsageError for bytes that
/// are not a profile of this version.
[[nodiscard]] std::string to_bytes(const RankProfile& profile);
[[nodiscard]] RankProfile profile_from_bytes(std::string_view bytes);

struct ProfileFacts {
  int world = 1;
  StepWindow window = {};
  std::vector<int> missing = {};  // ranks without events
};

/// Writes the file. `ranks` are sorted by rank.
void write_profile(std::ostream& file, std::span<const RankProfile> ranks,
                   const ProfileFacts& facts);

}  // namespace lockstep
