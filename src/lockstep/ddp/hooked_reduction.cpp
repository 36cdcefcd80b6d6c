#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/collectives/peer_calls.h"
#include "lockstep/ddp/connect_device_internal.h"
#include "lockstep/ddp/hook_choice_internal.h"
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

class HookedReduction::RunWork final : public BucketWork {
 public:
  /// `run` is null in a step that has failed here.
  RunWork(HookedReduction& reduction, std::shared_ptr<HookRun> run)
      : reduction_(reduction), run_(std::move(run)) {}

  bool advance() override {
    reduction_.advance();
    return !run_ || run_->has_ended();
  }
  void wait() override {
    const bool had_ended = run_ && run_->has_ended();
    while (run_ && !run_->has_ended()) (void)reduction_.continue_front(/*waits=*/true);
    // The current stream may be another one than that of the first wait().
    if (!had_ended || !reduction_.device_.is_cuda() || reduction_.failure_) return;
    for (auto& work : run_->state().works) work.wait();
  }
  [[nodiscard]] const GroupFlags& flags() const override {
    static const GroupFlags none;
    return run_ && !reduction_.failure_ ? run_->state().works.front().flags() : none;
  }
  [[nodiscard]] WorkTimes times() const override {
    if (!run_ || reduction_.failure_) return {};
    const auto& works = run_->state().works;
    return {.all_entered = works.front().times().all_entered, .done = works.back().times().done};
  }
  [[nodiscard]] std::optional<BucketCost> cost() const override {
    if (!run_) return std::nullopt;
    const auto& state = run_->state();
    return BucketCost{.wire_bytes = static_cast<std::int64_t>(state.wire_bytes),
                      .encode = state.encode,
                      .decode = state.decode};
  }

 private:
  HookedReduction& reduction_;
  std::shared_ptr<HookRun> run_;
};

HookedReduction::HookedReduction(const ProcessGroup& group, at::Device device, GradientHook hook)
    : hook_(std::move(hook)),
      device_(device),
      groups_{group, group.size() > 1 ? group.split(0) : group},
      plain_(make_all_reduction(group)) {
  if (group.size() == 1) return;
  failures_ = group.split(0);
  connect_device(groups_.stages, device_);
}

void HookedReduction::set_buckets(std::vector<std::vector<BucketParameter>> parameters) {
  runs_.clear();
  parameters_ = std::move(parameters);
  values_.assign(parameters_.size(), {});
  scratch_.clear();
  chosen_.clear();
}

const GradientHook& HookedReduction::hook_of(int index) const {
  if (hook_.candidates().empty()) return hook_;
  const auto candidate = chosen_.empty() ? 0 : chosen_[static_cast<std::size_t>(index)];
  return hook_.candidates()[static_cast<std::size_t>(candidate)];
}

void HookedReduction::choose_if_due() {
  // The first step may change the buckets.
  constexpr std::int64_t kStepsBefore = 2;
  if (hook_.candidates().empty() || !chosen_.empty() || steps_ < kStepsBefore) return;
  chosen_ = choose_hooks(groups_, device_, hook_.candidates(), parameters_, values_);
}

void HookedReduction::begin() {
  runs_.clear();
  front_ = 0;
  failure_ = nullptr;
  overflowed_ = false;
}

std::unique_ptr<BucketWork> HookedReduction::start(at::Tensor& bucket, const BucketCall& call) {
  if (failure_) return std::make_unique<RunWork>(*this, nullptr);
  auto flags = call.flags;
  for (const auto& run : runs_) {
    if (run->state().non_finite) flags.any |= StepFlags::kNonFinite;
  }
  const auto index = static_cast<std::size_t>(call.index);
  values_[index] = bucket.dim() == 1 ? bucket : bucket.view({-1});
  auto run =
      std::make_shared<HookRun>(GradientBucket::State::Facts{.values = values_[index],
                                                             .parameters = parameters_[index],
                                                             .index = call.index,
                                                             .is_last = call.is_last,
                                                             .name = std::string(call.name),
                                                             .flags = flags,
                                                             .weight = call.weight},
                                groups_, scratch_);
  runs_.push_back(run);
  try {
    run->begin(hook_of(call.index));
  } catch (const PeerError&) {
    throw;  // the group has failed
  } catch (...) {
    fail();
  }
  return std::make_unique<RunWork>(*this, std::move(run));
}

void HookedReduction::fail() noexcept {
  if (!failure_) failure_ = std::current_exception();
  for (const auto& run : runs_) run->give_up();
  front_ = runs_.size();
}

void HookedReduction::advance() {
  while (continue_front(/*waits=*/false)) continue;
}

bool HookedReduction::continue_front(bool waits) {
  if (front_ == runs_.size()) return false;
  auto& run = *runs_[front_];
  try {
    if (!run.advance(waits)) return false;
  } catch (const PeerError&) {
    throw;
  } catch (...) {
    fail();
    return true;
  }
  if (run.has_ended()) ++front_;
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
  for (const auto& run : runs_) overflowed_ = overflowed_ || run->state().non_finite;
  if (has(all, StepFlags::kFailed)) {
    if (failures_) answer_until_all_know();
  } else if (!has(all, StepFlags::kNonFinite) && all.sum > 0) {
    ++steps_;
    for (const auto& run : runs_) {
      for (const auto& change : run->state().commits) change();
    }
  }
  return all;
}

// Sums of finite gradients may overflow, and gradients on a GPU are not noted when they arrive. A
// hook that keeps state must not keep such a step.
bool HookedReduction::has_non_finite_result() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const auto& run) {
    const auto& state = run->state();
    return state.non_finite || (!state.commits.empty() && has_non_finite(state.facts.values));
  });
}

void HookedReduction::answer_until_all_know() {
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
      works.push_back(calls.answer_as_failed(*call, device_, {.any = StepFlags::kFailed}));
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
  for (const auto& run : runs_) {
    for (auto& work : run->state().works) work.wait();
  }
}

std::vector<bool> HookedReduction::combine_used(const std::vector<bool>& used) {
  return plain_->combine_used(used);
}

}  // namespace lockstep
