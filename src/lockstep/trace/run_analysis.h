// What a run's figures mean: where its time went, which rank the others wait for and why, what the
// buckets do, and what to change. A pure function of the rows of metrics.jsonl; terminal, JSON and
// report use the same result.
//
// Which rank waits for which: waiting inside backward makes the wall time of backward equal on all
// ranks. The analysis therefore compares the times at which ranks enter the last all-reduce of a
// step (RankInterval::late_ms), and what each rank did until then.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/trace/rank_interval.h"

namespace lockstep {

/// A checkpoint that could not be written.
struct SaveFailure {
  int rank = 0;
  std::string text = {};
};

/// Facts that the rows of ranks do not have.
struct RunFacts {
  int workers = 0;                 // data loading threads per rank
  double save_every = 0;           // steps between saves; 0: none
  double bucket_bytes = 25 << 20;  // the setting
  std::string backend = "shm";
  std::optional<double> step_ms_without_ddp = {};  // same model, same process, no communication
  std::vector<SaveFailure> save_failures = {};
};

/// Input, in any order. Buckets are those of one moment, the newest.
struct AnalysisInput {
  std::vector<RankInterval> intervals = {};
  std::vector<BucketFigures> buckets = {};
  RunFacts facts = {};
};

enum class Cause {
  data,           // its loader is slow
  compute,        // it computes longer: a slower processor, or more work
  processor,      // other programs use its processor: it was ready and did not run
  steal,          // the hypervisor withheld processor time
  throttled,      // the cgroup's quota
  checkpoint,     // saves stall the step: a slow or full disk
  evaluation,     // evaluations take a large part of the time
  link,           // the reduction itself is slow
  small_buckets,  // many small all-reduces
};

/// "data", "compute", …; in JSON and in event rows.
[[nodiscard]] std::string_view name_of(Cause cause) noexcept;

/// A rank that the others wait for.
struct Straggler {
  int rank = 0;
  double late_ms = 0;  // per step, mean over the steps of the run
  double last = 0;     // fraction of the steps
  Cause cause = Cause::compute;
  double excess_ms = 0;   // of this cause, against the median of the other ranks
  std::string text = {};  // "rank 1 waits 31.2 ms per step for data, the others 0.4 ms"
};

struct RankSummary {
  int rank = 0;
  int host = 0;
  std::int64_t steps = 0;
  double step_ms = 0;
  double p50_ms = 0;  // median over the intervals
  double max_ms = 0;
  std::array<double, kNumStepParts> split_ms{};
  double late_ms = 0;
  double last = 0;
  double peak_rss_bytes = 0;
};

struct BucketAnalysis {
  std::vector<BucketFigures> buckets = {};  // in the order of reduction
  double count = 0;                         // `buckets` combines neighbours if there are many
  double total_bytes = 0;
  double mean_gb_per_s = 0;    // all bytes / the sum of the reductions' times
  std::vector<int> slow = {};  // below half of the mean
  int slowest = -1;
  double overlap = 0;           // achieved: fraction of reduction time that backward hid
  double possible_overlap = 0;  // with the best bucket size of the model below
  double best_bucket_bytes = 0;
};

struct Advice {
  Cause cause = Cause::compute;
  std::optional<int> rank = {};  // nullopt: all ranks
  double gain = 0;               // expected: fraction of the step time that is saved
  std::string text = {};         // what was measured
  std::string action = {};       // what to do: "--workers 2"
};

struct RunAnalysis {
  int world = 0;
  std::int64_t steps = 0;
  double step_ms = 0;                                 // mean over ranks
  std::array<double, kNumStepParts> split_ms{};       // mean over ranks
  std::vector<RankSummary> ranks = {};                // by rank
  std::vector<Straggler> stragglers = {};             // most lost time first
  BucketAnalysis buckets = {};                        // empty: no bucket rows
  std::optional<double> communication_overhead = {};  // (with Ddp - without) / without
  std::vector<Advice> advice = {};                    // largest gain first
};

/// The limit of RunAnalysis::communication_overhead.
inline constexpr double kMaxCommunicationOverhead = 0.1;

/// The first interval is left out if there are others: it includes the start.
[[nodiscard]] RunAnalysis analyse(const AnalysisInput& input);

/// For a terminal, at most `columns` wide; and as one JSON object.
[[nodiscard]] std::string to_text(const RunAnalysis& analysis, int columns = 100);
[[nodiscard]] std::string to_json(const RunAnalysis& analysis);

}  // namespace lockstep
