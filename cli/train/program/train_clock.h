// How long a run has trained, for one whose length is a time.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

/// Offers what a checkpoint saves.
struct TrainClock {
  double seconds = 0;

  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError for anything that state_json does not write.
  void load_state_json(std::string_view json);
};

}  // namespace lockstep::cli
