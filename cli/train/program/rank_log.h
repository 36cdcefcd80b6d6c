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
#include "lockstep/trace/link_speed.h"
#include "lockstep/trace/run_analysis.h"
#include "lockstep/train/host_syncs.h"

namespace lockstep::cli {

/// The GPU of a rank, read through NVML, and how often the host waits for it.
class GpuMeter {
 public:
  /// `nvml` is null where NVML is not installed: then there are no figures.
  GpuMeter(std::shared_ptr<const Nvml> nvml, Gpu gpu);
  /// Reads the GPU. Takes milliseconds: call it while the GPU still computes.
  void look();
  /// The figures of the last look, and the waits per step of `steps` steps.
  [[nodiscard]] std::optional<GpuFigures> read_and_reset(std::int64_t steps);

 private:
  std::optional<GpuFigures> seen_;
  HostSyncs syncs_;
  std::shared_ptr<const Nvml> nvml_;
  Gpu gpu_;
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
  /// Call it in the last step of an interval, before the host waits for the device.
  void before_wait();
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
  std::vector<LinkCount> counts_;  // at the begin of the interval
  double network_seconds_ = 0;     // likewise
  // Of rank 0.
  std::deque<std::vector<RankInterval>> recent_;  // by interval
  std::vector<BucketFigures> buckets_;            // the newest
  std::set<std::pair<Cause, int>> given_;         // advice that was given last
};

}  // namespace lockstep::cli
