// The rows of ranks, buckets and events of a run: where the time of each rank goes, and advice.
// Ranks exchange their figures at the ends of log intervals; rank 0 writes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/train/program/reporter.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/machine/gpu_load.h"
#include "lockstep/rendezvous/host_clocks.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/trace/interval_meter.h"
#include "lockstep/trace/run_analysis.h"

namespace lockstep::cli {

/// The GPU of a rank, read through NVML.
class GpuMeter {
 public:
  /// `index` counts the GPUs that this process may use.
  explicit GpuMeter(int index);
  [[nodiscard]] std::optional<GpuFigures> read() const;

 private:
  std::shared_ptr<const Nvml> nvml_;  // null: not installed
  std::optional<Gpu> gpu_;
};

struct RankLogOptions {
  RunFacts facts = {};
  std::optional<int> gpu = {};  // the index of this rank's GPU
};

class RankLog {
 public:
  /// Collective if there are several hosts. `group` and `reporter` must outlive it.
  RankLog(const World& world, const ProcessGroup& group, Reporter& reporter,
          const RankLogOptions& options);

  /// Adds a step whose backward began at `backward`.
  void add(const StepSplit& split, const StepRecord& record, StepClock::time_point backward);
  /// Ends an interval after `step`; `loss` is the mean of this rank. Collective.
  void end_interval(std::int64_t step, double loss);
  /// Writes the rows of buckets and, if it has changed, advice. Collective.
  void end_period(std::int64_t step);

  /// The analysis of the recent intervals. Rank 0 only.
  [[nodiscard]] RunAnalysis analysis() const;
  /// Writes an event row with its kind and other metrics.
  void event(std::int64_t step, std::string kind, std::vector<Metric> metrics = {});

 private:
  const World& world_;
  const ProcessGroup& group_;
  Reporter& reporter_;
  const RunFacts facts_;
  std::optional<GpuMeter> gpu_;
  HostClock clock_;
  IntervalMeter meter_;
  BucketMeter bucket_meter_;
  // Of rank 0.
  std::deque<std::vector<RankInterval>> recent_;  // by interval
  std::vector<BucketFigures> buckets_;            // the newest
  std::set<std::pair<Cause, int>> given_;         // advice that was given last
};

}  // namespace lockstep::cli
