#include "lockstep/ddp/reducer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/ddp/advice_internal.h"
#include "lockstep/ddp/peer_follower_internal.h"

namespace lockstep {
namespace {

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  const auto begin_of = [](const at::Tensor& range) {
    return static_cast<const std::byte*>(range.const_data_ptr());
  };
  return begin_of(a) < begin_of(b) + b.nbytes() && begin_of(b) < begin_of(a) + a.nbytes();
}

constexpr auto kAdvice =
    "Every rank must run the same number of backwards and freeze the same parameters: a rank "
    "without a batch, or whose loss uses no parameter, calls ddp.sit_out() instead. Tail::drop and "
    "Tail::pad of the Loader give all ranks the same number of batches";

}  // namespace

Reducer::Reducer(const GradientSlots& slots, int buffer, BucketPlan plan,
                 std::vector<at::Tensor> ranges, BucketReduction& reduction, RankPage page,
                 ReducerOptions options)
    : slots_(slots),
      buffer_(buffer),
      plan_(std::move(plan)),
      ranges_(std::move(ranges)),
      reduction_(reduction),
      page_(std::move(page)),
      options_(std::move(options)),
      ready_(static_cast<std::size_t>(slots.size()), false),
      contributes_(static_cast<std::size_t>(slots.size()), false) {
  options_.timed = options_.timed && !ranges_.empty() && ranges_.front().is_cuda();
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    names_.push_back(fmt::format("{}{}", kGradientsName, i));
  }
}

void Reducer::begin(const CallFlags& flags, std::int64_t number) {
  begun_ = true;
  has_ended_ = false;
  is_impatient_ = false;
  reduction_.begin();
  flags_ = flags;
  number_ = number;
  calls_ = 0;
  record_ = {};
  launching_ = 0;
  waited_ = 0;
  settled_.assign(ranges_.size(), false);
  is_moved_.assign(ready_.size(), false);
  if (options_.timed)
    timeline_ = std::make_shared<DeviceTimeline>(ranges_.front().device(), ranges_.size());
  arrival_.clear();
  works_.clear();
  kept_.clear();
  missing_.clear();
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    missing_.push_back(static_cast<int>(plan_.buckets[i].parameters.size()));
    const auto bytes = static_cast<std::int64_t>(ranges_[i].nbytes());
    record_.buckets.push_back({.bytes = bytes, .wire_bytes = bytes});
  }
  last_ = 0;
  for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
    if (needs_reduction(plan_.buckets[i])) last_ = i;
  }
  for (int i = 0; i < slots_.size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    ready_[index] = !trains(i);
    if (ready_[index]) --missing_[static_cast<std::size_t>(plan_.bucket_of[index])];
    // The bucket of a frozen parameter may never start, but a gradient that arrived before it was
    // frozen still counts.
    contributes_[index] = ready_[index] && slots_.state(i) == GradientState::fresh;
  }
}

void Reducer::ready(int parameter) {
  const auto index = static_cast<std::size_t>(parameter);
  if (!trains(parameter)) return;  // frozen after the graph was built: ready since begin()
  if (ready_[index]) {
    throw UsageError(fmt::format(
        "parameter {} got a second gradient in one backward. This happens when a nested backward "
        "(re-entrant checkpointing) uses a parameter that is also used outside of it: run "
        "backward() under no_sync() and then ddp.start().wait(), or use recompute()",
        slots_.entry(parameter).name));
  }
  ready_[index] = true;
  arrival_.push_back(parameter);
  ++record_.hooks;
  const auto bucket = static_cast<std::size_t>(plan_.bucket_of[index]);
  move_early(parameter);
  if (--missing_[bucket] == 0) record_.buckets[bucket].ready = StepClock::now();
  start_full_buckets(last_, patience());
}

void Reducer::start_rest() {
  has_ended_ = true;
  const auto now = StepClock::now();
  slots_.flush();
  if (timeline_) timeline_->mark_end_of_backward();
  for (std::size_t i = 0; i < missing_.size(); ++i) {
    if (missing_[i] != 0) record_.buckets[i].ready = now;
    missing_[i] = 0;
  }
  start_full_buckets(missing_.size(), Patience::none);
}

void Reducer::start_rest_as_failed() {
  if (works_.size() > last_) return;  // too late: the last call has already reported success
  flags_.any |= StepFlags::kFailed;
  while (works_.size() < plan_.buckets.size()) {
    if (needs_reduction(plan_.buckets[works_.size()])) {
      (void)make_room(works_.size(), Patience::endless);
      launch(works_.size());
    } else {
      works_.push_back(nullptr);
    }
  }
}

void Reducer::advance() {
  if (!begun_) return;
  if (!has_ended_) return advance_started();
  start_full_buckets(missing_.size(), Patience::none);
}

void Reducer::advance_started() {
  if (works_.empty() || !works_.back()) return;
  with_advice(kAdvice, [&] { (void)works_.back()->advance(); });
}

GroupFlags Reducer::finish() {
  const auto begin = StepClock::now();
  start_full_buckets(missing_.size(), Patience::endless);
  begun_ = false;  // also if a wait below throws: the group has failed then
  GroupFlags all;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (!works_[i]) continue;
    page_.enter(StepPart::exposed, static_cast<int>(i));
    with_advice(kAdvice, [&] {
      const auto mark = [&] {
        if (timeline_) timeline_->mark_done(i, [&] { works_[i]->wait(); });
      };
      // A hook computes on the caller's stream, not on that of the timeline.
      if (!reduction_.computes()) mark();
      works_[i]->wait();
      if (reduction_.computes()) mark();
    });
    if (!settled_[i]) settle(i);
    all = works_[i]->flags();
  }
  with_advice(kAdvice, [&] { all = reduction_.end(all); });
  note_times();
  if (has(all, StepFlags::kFailed)) {
    forget();
    return all;
  }
  used_ = find_used(all);
  const at::NoGradGuard off;
  for (const auto& [parameter, gradient] : kept_) {
    if (!used_[static_cast<std::size_t>(parameter)]) slot_of(parameter).copy_(gradient);
  }
  non_finite_.clear();
  for (int i = 0; i < slots_.size(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    used_[index] = used_[index] && trains(i);
    if (used_[index] && !options_.sharded) slots_.bind(i);
    if (contributes_[index] && slots_.non_finite(i, buffer_)) non_finite_.push_back(i);
  }
  if (options_.sharded) slots_.discard();
  forget();
  record_.exposed = StepClock::now() - begin;
  record_.device = std::move(timeline_);
  return all;
}

// A bucket may have been complete long before finish() looked at it.
void Reducer::note_times() {
  const auto anchor = TickAnchor::now();
  record_.launching = std::chrono::nanoseconds(
      static_cast<std::int64_t>(static_cast<double>(launching_) * anchor.nanoseconds_per_tick()));
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (!works_[i]) continue;
    auto& bucket = record_.buckets[i];
    if (const auto cost = works_[i]->cost()) {
      bucket.wire_bytes = cost->wire_bytes;
      bucket.encode = cost->encode;
      bucket.decode = cost->decode;
    }
    const auto times = works_[i]->times();
    if (times.done != 0) bucket.done = std::min(bucket.done, anchor.steady(times.done));
    bucket.all_entered = times.all_entered == 0
                             ? bucket.launched
                             : std::clamp(anchor.steady(times.all_entered), bucket.launched,
                                          std::max(bucket.launched, bucket.done));
  }
}

void Reducer::forget() noexcept {
  begun_ = false;
  works_.clear();
  kept_.clear();
  slots_.mark_stale(buffer_);
}

bool Reducer::trains(int parameter) const {
  return slots_.entry(parameter).parameter.requires_grad();
}

const at::Tensor& Reducer::slot_of(int parameter) const {
  return slots_.entry(parameter).gradients[static_cast<std::size_t>(buffer_)];
}

// A bucket of frozen parameters only is not reduced.
bool Reducer::needs_reduction(const Bucket& bucket) const {
  return std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                     [this](int parameter) { return trains(parameter); });
}

void Reducer::start_full_buckets(std::size_t end, Patience patience) {
  const auto begin = ticks();
  const auto waited = waited_;
  for (auto next = works_.size(); next < end && missing_[next] == 0; ++next) {
    if (!make_room(next, patience)) break;
    start(next);
  }
  advance_started();
  launching_ += ticks() - begin - (waited_ - waited);
}

Reducer::Patience Reducer::patience() const noexcept {
  return options_.waits && !is_impatient_ ? Patience::little : Patience::none;
}

// Waits for earlier buckets in the memory of this one. Returns false if one of them is not reduced.
bool Reducer::make_room(std::size_t index, Patience patience) {
  if (options_.ring.empty() || !needs_reduction(plan_.buckets[index])) return true;
  const auto begin = ticks();
  const auto begin_time = StepClock::now();
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (!works_[i] || settled_[i] || !share_memory(ranges_[i], ranges_[index])) continue;
    const bool is_reduced = with_advice(kAdvice, [&] { return works_[i]->advance(); });
    const bool has_room = is_reduced || await(i, patience);
    if (has_room) {
      with_advice(kAdvice, [&] { works_[i]->wait(); });
      settle(i);
    }
    if (!is_reduced && patience != Patience::none) {
      waited_ += ticks() - begin;
      record_.buckets[index].room = StepClock::now() - begin_time;
    }
    if (!has_room) return false;
  }
  return true;
}

// Whether wait() may be called for the bucket.
bool Reducer::await(std::size_t index, Patience patience) {
  if (patience != Patience::little) return patience == Patience::endless;
  if (ranges_[index].is_cuda()) return true;  // it waits until all ranks have started the call
  // A slow rank is rarely this late. The price is memory: gradients stay in their slots.
  const auto deadline = Deadline::after(std::chrono::seconds(1));
  for (int idle = 0; !is_impatient_; pause_between_looks(idle++)) {
    if (with_advice(kAdvice, [&] { return works_[index]->advance(); })) return true;
    is_impatient_ = deadline.expired();
  }
  return false;
}

// The bucket has been waited on.
void Reducer::settle(std::size_t index) {
  settled_[index] = true;
  record_.buckets[index].done = StepClock::now();
  if (options_.keep) options_.keep(static_cast<int>(index), works_[index]->flags());
}

void Reducer::start(std::size_t index) {
  const auto& bucket = plan_.buckets[index];
  auto& record = record_.buckets[index];
  record.launched = StepClock::now();
  record.hooks_before = record_.hooks;
  if (!needs_reduction(bucket)) {
    works_.push_back(nullptr);
    return;
  }
  if (options_.ring.empty()) {
    collect(bucket);
  } else {
    move_in(index);
  }
  if (timeline_) timeline_->mark_ready(index);
  launch(index);
  if (timeline_) timeline_->mark_launched(index);
}

void Reducer::launch(std::size_t index) {
  page_.enter_bucket(static_cast<int>(index));
  const auto name =
      calls_++ > 0 ? names_[index] : fmt::format("{} of backward {}", names_[index], number_);
  works_.push_back(with_advice(kAdvice, [&] {
    return reduction_.start(ranges_[index], {.name = name,
                                             .flags = flags_of(index),
                                             .weight = flags_.sum,
                                             .index = static_cast<int>(index),
                                             .is_last = index == last_});
  }));
}

// The user may have reset a gradient since it arrived, or assigned one.
void Reducer::collect(const Bucket& bucket) {
  const at::NoGradGuard off;
  for (const int parameter : bucket.parameters) {
    const auto state = slots_.collect(parameter);
    contributes_[static_cast<std::size_t>(parameter)] = state == GradientState::fresh;
    if (state == GradientState::fresh) continue;
    const bool stale = state == GradientState::stale;
    if (stale) kept_.emplace_back(parameter, slot_of(parameter).clone());
    // A rank without samples has weight 0, also for stale gradients.
    if (!stale || flags_.sum == 0) slot_of(parameter).zero_();
  }
  slots_.flush();
}

// The same for loose slots.
void Reducer::move_in(std::size_t index) {
  const auto& bucket = options_.ring[index];
  for (const auto& padding : bucket.padding) padding.zero_();
  const auto& parameters = plan_.buckets[index].parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!is_moved_[static_cast<std::size_t>(parameters[i])])
      move(parameters[i], bucket.parameters[i]);
  }
  slots_.flush();
}

void Reducer::move(int parameter, const at::Tensor& to) {
  const at::NoGradGuard off;
  const auto state = slots_.move_to(parameter, buffer_, to);
  contributes_[static_cast<std::size_t>(parameter)] = state == GradientState::fresh;
  const bool is_empty = flags_.sum == 0 && state == GradientState::stale;  // as in collect()
  if (state == GradientState::absent || is_empty) to.zero_();
}

// Moves a gradient before its bucket is full: until then it would have memory of its own. On a GPU
// it has: the copies of a bucket are one kernel.
void Reducer::move_early(int parameter) {
  const auto index = static_cast<std::size_t>(plan_.bucket_of[static_cast<std::size_t>(parameter)]);
  if (options_.ring.empty() || ranges_[index].is_cuda()) return;
  for (auto earlier = works_.size(); earlier < index; ++earlier) {
    if (share_memory(ranges_[earlier], ranges_[index])) return;  // it comes first
  }
  if (!make_room(index, patience())) return;
  const auto& parameters = plan_.buckets[index].parameters;
  const auto at = std::find(parameters.begin(), parameters.end(), parameter) - parameters.begin();
  move(parameter, options_.ring[index].parameters[static_cast<std::size_t>(at)]);
  is_moved_[static_cast<std::size_t>(parameter)] = true;
}

// The last bucket's call carries the facts about all parameters.
CallFlags Reducer::flags_of(std::size_t index) const {
  auto flags = flags_;
  if (index != last_) return flags;
  for (int i = 0; i < slots_.size(); ++i) {
    const bool contributes = contributes_[static_cast<std::size_t>(i)];
    if (contributes && slots_.non_finite(i, buffer_)) flags.any |= StepFlags::kNonFinite;
    if (!contributes && trains(i) && !flags.absent) flags.any |= StepFlags::kUnused;
  }
  return flags;
}

std::vector<bool> Reducer::find_used(const GroupFlags& all) const {
  std::vector<bool> used(contributes_.size());
  if (all.num_absent == reduction_.num_ranks()) return used;
  if (has(all, StepFlags::kUnused)) return reduction_.combine_used(contributes_);
  for (int i = 0; i < slots_.size(); ++i) used[static_cast<std::size_t>(i)] = trains(i);
  return used;
}

}  // namespace lockstep
