// What `lockstep top` shows, as pure functions of the state of a run.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/trace/run_pages.h"

namespace lockstep::cli {

/// Steps per second of each rank over the last seconds, from the states that were shown.
class StepRates {
 public:
  void add(const RunState& run, std::chrono::steady_clock::time_point now);
  /// By rank; nullopt until two states a second apart are known.
  [[nodiscard]] std::vector<std::optional<double>> rates() const;

 private:
  struct Sample {
    std::chrono::steady_clock::time_point time;
    int round = 0;
    std::vector<std::optional<std::int64_t>> steps;  // by rank
  };
  std::deque<Sample> samples_;
};

struct TopStyle {
  std::string folder = {};  // for the title
  bool color = false;
  int columns = 100;
  int rows = 1 << 20;  // fewer: ranks that run normally are counted, not shown
  std::vector<std::optional<double>> rates = {};  // by rank; empty: means since the first step
};

/// One line about the run, one per rank, and one about ranks that others wait for.
[[nodiscard]] std::string top_text(const RunState& run, const TopStyle& style,
                                   std::chrono::system_clock::time_point now);

/// One JSON object.
[[nodiscard]] std::string top_json(const RunState& run, const std::string& folder);

/// Whether this rank needs a look: stopped, failed, or for more than 10 s in the same place.
[[nodiscard]] bool is_suspicious(const RankState& rank) noexcept;

/// "rank 1 is in call 41, the others wait in call 42", if the ranks of a running job wait for more
/// than a second; empty otherwise.
[[nodiscard]] std::string awaited_in_words(const RunState& run);

}  // namespace lockstep::cli
