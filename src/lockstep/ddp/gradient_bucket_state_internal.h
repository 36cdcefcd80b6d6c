// What the GradientBuckets of one bucket in one step share: the groups, the calls made so far, and
// what is reported at the end of the step. hooked_reduction.cpp makes one per bucket and step.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/call_flags.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/gradient_bucket.h"

namespace lockstep {

/// Tensors of GradientBucket::scratch(), by bucket and name.
using HookScratch = std::map<std::pair<int, std::string>, at::Tensor>;

class GradientBucket::State {
 public:
  struct Facts {
    at::Tensor values = {};
    std::span<const BucketParameter> parameters = {};
    int index = 0;
    bool is_last = false;
    bool is_trial = false;
    std::string name = {};  // of the first call
    CallFlags flags = {};   // of the first call
    std::int64_t weight = 0;
  };
  struct Groups {
    ProcessGroup gradients;  // for calls before the first suspension
    ProcessGroup stages;     // for later ones
  };

  State(Facts the_facts, const Groups& the_groups, HookScratch& the_scratch)
      : facts(std::move(the_facts)), groups(the_groups), scratch(the_scratch) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Makes a call: `start` gets the group and the options. `traffic` is the number of bytes that an
  /// all-reduce with as much traffic would reduce.
  template <typename Start>
  Work make_call(ReduceOp op, double traffic, const Start& start) {
    const auto name = name_of_next_call();
    const CallOptions options{
        .name = name,
        .flags = works.empty() ? std::optional(facts.flags) : std::nullopt,
        .weight = op == ReduceOp::weighted_average ? std::optional(facts.weight) : std::nullopt};
    auto work = start(is_suspended ? groups.stages : groups.gradients, options);
    works.push_back(work);
    wire_bytes += traffic;
    return work;
  }

  const Facts facts;
  const Groups& groups;
  HookScratch& scratch;
  bool is_suspended = false;  // the hook has awaited a call
  std::vector<Work> works;    // all calls; the first one carries the flags
  std::vector<std::function<void()>> commits;
  bool non_finite = false;
  double wire_bytes = 0;
  std::chrono::nanoseconds encode{0};
  std::chrono::nanoseconds decode{0};

 private:
  [[nodiscard]] std::string name_of_next_call() const;
};

}  // namespace lockstep
