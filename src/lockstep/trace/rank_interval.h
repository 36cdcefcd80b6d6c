// The figures of one rank over one interval of steps, and of one bucket: the input of the analysis
// (run_analysis.h). metrics.jsonl has them as rows of kind rank and bucket. Times are in
// milliseconds per step, because reports and rows show them so.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "lockstep/trace/step_split.h"

namespace lockstep {

/// Present on GPUs only. A GPU may not tell the optional figures, such as a MIG device its power.
struct GpuFigures {
  double utilization = 0;  // 0 to 1: fraction of the time in which a kernel ran
  double memory_bytes = 0;
  double clock_mhz = 0;  // of the multiprocessors
  std::optional<double> memory_clock_mhz = {};
  std::optional<double> power_watts = {};
  std::optional<double> host_syncs = {};  // per step: the host waited for the device

  friend bool operator==(const GpuFigures&, const GpuFigures&) = default;
};

struct RankInterval {
  std::int64_t step = 0;  // the number of completed steps at the end of the interval
  double time = 0;        // of its end, seconds since 1970
  int rank = 0;
  int host = 0;
  std::int64_t steps = 0;  // in the interval
  double loss = 0;         // mean of this rank

  double step_ms = 0;  // mean, the sum of `split_ms`
  double p50_ms = 0;
  double p95_ms = 0;
  double max_ms = 0;
  std::array<double, kNumStepParts> split_ms{};  // by StepPart

  double late_ms = 0;    // entered the last all-reduce after the median of the other ranks
  double last = 0;       // fraction of the steps in which it was the last one to enter
  double reduce_ms = 0;  // time in which at least one bucket was being reduced
  double overlap = 0;    // fraction of reduce_ms that was not exposed
  double launch_ms = 0;  // of backward: entering all-reduces and advancing them

  double rss_bytes = 0;
  double peak_rss_bytes = 0;
  double cpu_ms = 0;        // processor time of all threads of the process
  double network_ms = 0;    // of it, that of threads that move bytes between hosts
  double run_queue_ms = 0;  // the training thread was ready and waited for a processor
  double voluntary_switches = 0;
  double involuntary_switches = 0;
  double steal = 0;         // fraction of the host's processor time that its hypervisor withheld
  double throttled_ms = 0;  // the cgroup had used up its quota
  std::optional<GpuFigures> gpu = {};
  // Between hosts (link_speed.h); rates are 0 if too little was sent to tell.
  double slowest_peer = -1;  // the rank to which this one sends at the lowest rate
  double slowest_peer_mb_per_s = 0;
  double fastest_peer_mb_per_s = 0;

  [[nodiscard]] double part_ms(StepPart part) const noexcept {
    return split_ms[static_cast<std::size_t>(part)];
  }

  friend bool operator==(const RankInterval&, const RankInterval&) = default;
};

/// One bucket: means over ranks and steps. Times count from the begin of backward.
struct BucketFigures {
  int bucket = 0;
  double bytes = 0;
  double ready_ms = 0;     // its last gradient arrived
  double launched_ms = 0;  // the rank entered the all-reduce
  double done_ms = 0;
  double all_in_ms = 0;  // the last rank entered
  double gb_per_s = 0;   // bytes / (done - all_in): the time of the reduction itself
  double count = 1;      // of buckets whose means these are; above 1 if there are many

  friend bool operator==(const BucketFigures&, const BucketFigures&) = default;
};

}  // namespace lockstep
