// The training time of a run whose length is a time.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::cli {

/// A checkpoint saves and loads it.
struct TrainClock {
  double seconds = 0;

  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError for a text that state_json does not write.
  void load_state_json(std::string_view json);
};

}  // namespace lockstep::cli
