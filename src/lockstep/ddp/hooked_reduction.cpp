#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/collectives/peer_calls.h"
#include "lockstep/ddp/hooked_reduction_internal.h"
#include "lockstep/ddp/peer_follower_internal.h"
#include "lockstep/ddp/reducer.h"
#include "lockstep/ddp/step_flags.h"
#include "lockstep/flat/walk.h"

namespace lockstep {
namespace {

constexpr std::string_view kEndName = "gradients: end of hooks";

// The next call of this rank in `group`, as any rank has entered it, if a hook makes it.
std::optional<PeerCall> next_call_of_hooks(const PeerCalls& calls, const ProcessGroup& group) {
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    auto call = calls.next_of(rank);
    if (!call) continue;
    if (call->name().starts_with(kGradientsName) || call->name() == kEndName) return call;
  }
  return std::nullopt;
}

}  // namespace

struct HookedReduction::Entry {
  Entry(GradientBucket::State::Facts facts, const GradientBucket::State::Groups& groups,
        HookScratch& scratch)
      : state(std::move(facts), groups, scratch), bucket(state) {}

  GradientBucket::State state;
  GradientBucket bucket;
  HookSteps steps;
  bool ended = false;
};

class HookedReduction::EntryWork final : public BucketWork {
 public:
  /// `entry` is null in a step that has failed here.
  EntryWork(HookedReduction& reduction, std::shared_ptr<Entry> entry)
      : reduction_(reduction), entry_(std::move(entry)) {}

  void advance() override { reduction_.advance(); }
  void wait() override {
    while (entry_ && !entry_->ended) (void)reduction_.continue_front(/*waits=*/true);
  }
  [[nodiscard]] const GroupFlags& flags() const override {
    static const GroupFlags none;
    return entry_ && !reduction_.failure_ ? entry_->state.works.front().flags() : none;
  }
  [[nodiscard]] WorkTimes times() const override {
    if (!entry_ || reduction_.failure_) return {};
    const auto& works = entry_->state.works;
    return {.all_entered = works.front().times().all_entered, .done = works.back().times().done};
  }
  [[nodiscard]] std::optional<BucketCost> cost() const override {
    if (!entry_) return std::nullopt;
    const auto& state = entry_->state;
    return BucketCost{.wire_bytes = static_cast<std::int64_t>(state.wire_bytes),
                      .encode = state.encode,
                      .decode = state.decode};
  }

 private:
  HookedReduction& reduction_;
  std::shared_ptr<Entry> entry_;
};

HookedReduction::HookedReduction(const ProcessGroup& group, at::Device device, GradientHook hook)
    : hook_(std::move(hook)),
      device_(device),
      groups_{group, group.size() > 1 ? group.split(0) : group},
      plain_(make_all_reduction(group)) {
  if (group.size() > 1) failures_ = group.split(0);
}

HookedReduction::~HookedReduction() = default;

void HookedReduction::set_buckets(std::vector<std::vector<BucketParameter>> parameters) {
  entries_.clear();
  parameters_ = std::move(parameters);
  scratch_.clear();
}

void HookedReduction::begin() {
  entries_.clear();
  front_ = 0;
  failure_ = nullptr;
}

std::unique_ptr<BucketWork> HookedReduction::start(at::Tensor& bucket, const BucketCall& call) {
  if (failure_) return std::make_unique<EntryWork>(*this, nullptr);
  auto flags = call.flags;
  for (const auto& entry : entries_) {
    if (entry->state.non_finite) flags.any |= StepFlags::kNonFinite;
  }
  const auto& parameters = parameters_[static_cast<std::size_t>(call.index)];
  auto entry = std::make_shared<Entry>(
      GradientBucket::State::Facts{.values = bucket.dim() == 1 ? bucket : bucket.view({-1}),
                                   .parameters = parameters,
                                   .index = call.index,
                                   .is_last = call.is_last,
                                   .name = std::string(call.name),
                                   .flags = flags,
                                   .weight = call.weight},
      groups_, scratch_);
  entries_.push_back(entry);
  begin_entry(*entry);
  return std::make_unique<EntryWork>(*this, std::move(entry));
}

void HookedReduction::begin_entry(Entry& entry) {
  try {
    if (hook_.is_simple()) {
      (void)hook_.call(entry.bucket);
    } else {
      entry.steps = hook_(entry.bucket);
      entry.steps.resume();
    }
    // Every bucket has a call, because its flags are awaited.
    if (entry.state.works.empty()) {
      (void)entry.state.make_call(ReduceOp::sum, 0,
                                  [](const ProcessGroup& group, const CallOptions& options) {
                                    return group.barrier(options);
                                  });
    }
  } catch (const PeerError&) {
    throw;  // the group has failed
  } catch (...) {
    fail();
  }
}

void HookedReduction::fail() noexcept {
  if (!failure_) failure_ = std::current_exception();
  for (const auto& entry : entries_) entry->ended = true;
  front_ = entries_.size();
}

void HookedReduction::advance() {
  while (continue_front(/*waits=*/false)) continue;
}

bool HookedReduction::continue_front(bool waits) {
  if (front_ == entries_.size()) return false;
  auto& entry = *entries_[front_];
  const auto is_done = [waits](Work& work) {
    if (waits) work.wait();
    return waits || work.done();
  };
  if (entry.steps.done()) {
    auto& works = entry.state.works;
    if (!std::all_of(works.begin(), works.end(), is_done)) return false;
    entry.ended = true;
    ++front_;
    return true;
  }
  // On a GPU the rest of the steps is enqueued on one stream, that of the end of backward().
  if (!waits && entry.bucket.values().is_cuda()) return false;
  if (!is_done(entry.steps.awaited())) return false;
  entry.state.is_suspended = true;
  try {
    entry.steps.resume();
  } catch (const PeerError&) {
    throw;
  } catch (...) {
    fail();
  }
  return true;
}

GroupFlags HookedReduction::end(const GroupFlags& last) {
  auto all = last;
  if (failure_) {
    all.any |= StepFlags::kFailed;
  } else {
    CallFlags own;
    if (has_non_finite_result()) own.any |= StepFlags::kNonFinite;
    auto work = groups_.stages.barrier({.name = kEndName, .flags = own});
    work.wait();
    all.any |= work.flags().any;
  }
  if (has(all, StepFlags::kFailed)) {
    if (failures_) take_part_until_all_know();
  } else if (!has(all, StepFlags::kNonFinite) && all.sum > 0) {
    for (const auto& entry : entries_) {
      for (const auto& change : entry->state.commits) change();
    }
  }
  entries_.clear();
  front_ = 0;
  return all;
}

// Sums of finite gradients may overflow, and gradients on a GPU are not noted when they arrive. A
// hook that keeps state must not keep such a step.
bool HookedReduction::has_non_finite_result() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry->state.non_finite ||
           (!entry->state.commits.empty() && has_non_finite(entry->state.facts.values));
  });
}

void HookedReduction::take_part_until_all_know() {
  auto all_know = failures_->barrier({.name = "a hook or a backward failed"});
  if (!failure_) return all_know.wait();
  const auto timeout = PeerCalls(*failures_).timeout();
  auto deadline = Deadline::after(timeout);
  std::vector<Work> works;
  for (int idle = 0;;) {
    // First: what a rank has entered earlier is seen earlier.
    const bool is_last_look = all_know.done();
    bool made = false;
    for (const auto* group : {&groups_.gradients, &groups_.stages}) {
      const PeerCalls calls(*group);
      const auto call = next_call_of_hooks(calls, *group);
      if (!call) continue;
      works.push_back(calls.take_part(*call, device_, {.any = StepFlags::kFailed}));
      made = true;
    }
    if (made) {
      idle = 0;
      deadline = Deadline::after(timeout);
      continue;
    }
    if (is_last_look) break;
    if (deadline.expired()) all_know.wait(deadline);  // throws with the rank that is late
    pause_between_looks(idle++);
  }
  for (auto& work : works) work.wait();
  for (const auto& entry : entries_) {
    for (auto& work : entry->state.works) work.wait();
  }
}

std::vector<bool> HookedReduction::combine_used(const std::vector<bool>& used) {
  return plain_->combine_used(used);
}

}  // namespace lockstep
