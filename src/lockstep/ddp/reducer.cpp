#include "lockstep/ddp/reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/ddp/advice_internal.h"

namespace lockstep {
namespace {

constexpr auto kAdvice =
    "Every rank runs the same number of backwards and freezes the same parameters: a rank without "
    "a "
    "batch, or whose loss uses no parameter, calls ddp.sit_out() instead; Tail::drop and Tail::pad "
    "of the Loader give all ranks as many batches";

at::Tensor range_of(const FlatParameters& flat, int buffer, const Bucket& bucket) {
  auto range = flat.gradients(bucket.segment, buffer).slice(0, bucket.begin, bucket.end);
  return range.is_complex() ? at::view_as_real(range) : range;
}

}  // namespace

Reducer::Reducer(FlatParameters& flat, int buffer, const ProcessGroup& group, BucketPlan plan)
    : flat_(flat),
      buffer_(buffer),
      group_(group),
      plan_(std::move(plan)),
      touched_(flat.parameters().size(), false),
      ready_(flat.parameters().size(), false) {
  for (const auto& bucket : plan_.buckets) {
    ranges_.push_back(range_of(flat, buffer, bucket));
    names_.push_back(fmt::format("gradients {}", names_.size()));
  }
}

void Reducer::touch(int parameter) { touched_[static_cast<std::size_t>(parameter)] = true; }

bool Reducer::is_touched(int parameter) const {
  return touched_[static_cast<std::size_t>(parameter)];
}

bool Reducer::any_touched() const {
  for (int i = 0; i < static_cast<int>(touched_.size()); ++i) {
    if (is_touched(i) && flat_.slots().is_live(i, buffer_)) return true;
  }
  return false;
}

void Reducer::begin(const CallFlags& flags, std::int64_t number) {
  begun_ = true;
  flags_ = flags;
  number_ = number;
  calls_ = 0;
  record_ = {};
  arrival_.clear();
  works_.clear();
  kept_.clear();
  missing_.clear();
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    missing_.push_back(static_cast<int>(plan_.buckets[i].parameters.size()));
    record_.buckets.push_back({.bytes = static_cast<std::int64_t>(ranges_[i].nbytes())});
  }
  last_ = 0;
  for (std::size_t i = 0; i < plan_.buckets.size(); ++i) {
    if (takes_part(plan_.buckets[i])) last_ = i;
  }
  std::fill(ready_.begin(), ready_.end(), false);
  for (int i = 0; i < static_cast<int>(ready_.size()); ++i) {
    if (trains(i)) continue;
    ready_[static_cast<std::size_t>(i)] = true;
    --missing_[static_cast<std::size_t>(plan_.bucket_of[static_cast<std::size_t>(i)])];
  }
}

void Reducer::ready(int parameter) {
  const auto index = static_cast<std::size_t>(parameter);
  if (!trains(parameter)) return;  // a graph older than its freezing: it was ready from the start
  if (ready_[index]) {
    throw UsageError(fmt::format(
        "parameter {} got a second gradient in one backward. That happens when a backward inside a "
        "backward (re-entrant checkpointing) uses a parameter that is used outside of it too: run "
        "backward() under no_sync() and then ddp.start().wait(), or use recompute()",
        flat_.parameters()[index].name));
  }
  ready_[index] = true;
  arrival_.push_back(parameter);
  ++record_.hooks;
  const auto bucket = static_cast<std::size_t>(plan_.bucket_of[index]);
  if (--missing_[bucket] == 0) record_.buckets[bucket].ready = StepClock::now();
  start_full_buckets(last_);
}

void Reducer::start_rest() {
  const auto now = StepClock::now();
  for (std::size_t i = 0; i < missing_.size(); ++i) {
    if (missing_[i] != 0) record_.buckets[i].ready = now;
    missing_[i] = 0;
  }
  start_full_buckets(missing_.size());
}

void Reducer::start_rest_as_failed() {
  if (works_.size() > last_) return;  // too late: the others have heard that all is well
  flags_.any |= StepFlags::kFailed;
  while (works_.size() < plan_.buckets.size()) {
    if (takes_part(plan_.buckets[works_.size()])) {
      launch(works_.size());
    } else {
      works_.emplace_back();
    }
  }
}

void Reducer::advance() {
  if (begun_ && !works_.empty()) {
    with_advice(kAdvice, [&] { (void)works_.back().done(); });
  }
}

GroupFlags Reducer::finish() {
  const auto begin = StepClock::now();
  begun_ = false;  // whatever happens now: a group that has failed says so by itself
  GroupFlags all;
  for (std::size_t i = 0; i < works_.size(); ++i) {
    if (!takes_part(plan_.buckets[i])) continue;
    with_advice(kAdvice, [&] { works_[i].wait(); });
    record_.buckets[i].done = StepClock::now();
    all = works_[i].flags();
  }
  if (has(all, StepFlags::kFailed)) {
    forget();
    return all;
  }
  const auto used = find_used(all);
  const at::NoGradGuard off;
  for (const auto& [parameter, gradient] : kept_) {
    if (!used[static_cast<std::size_t>(parameter)]) {
      flat_.parameters()[static_cast<std::size_t>(parameter)].gradient.copy_(gradient);
    }
  }
  for (int i = 0; i < static_cast<int>(used.size()); ++i) {
    if (used[static_cast<std::size_t>(i)] && trains(i)) flat_.slots().make_live(i);
  }
  non_finite_.clear();
  for (int i = 0; i < static_cast<int>(touched_.size()); ++i) {
    if (is_touched(i) && flat_.slots().non_finite(i)) non_finite_.push_back(i);
  }
  forget();
  record_.exposed = StepClock::now() - begin;
  return all;
}

void Reducer::forget() noexcept {
  works_.clear();
  kept_.clear();
  std::fill(touched_.begin(), touched_.end(), false);
}

bool Reducer::trains(int parameter) const {
  return flat_.parameters()[static_cast<std::size_t>(parameter)].tensor.requires_grad();
}

// Frozen parameters are reduced only beside others that train.
bool Reducer::takes_part(const Bucket& bucket) const {
  return std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                     [this](int parameter) { return trains(parameter); });
}

void Reducer::start_full_buckets(std::size_t end) {
  for (auto next = works_.size(); next < end && missing_[next] == 0; ++next) {
    start(next);
  }
  advance();
}

void Reducer::start(std::size_t index) {
  const auto& bucket = plan_.buckets[index];
  auto& record = record_.buckets[index];
  record.launched = StepClock::now();
  record.hooks_before = record_.hooks;
  if (!takes_part(bucket)) {
    works_.emplace_back();
    return;
  }
  settle_touched(bucket);
  prepare_untouched(bucket);
  launch(index);
}

void Reducer::launch(std::size_t index) {
  const auto name =
      calls_++ > 0 ? names_[index] : fmt::format("{} of backward {}", names_[index], number_);
  works_.push_back(with_advice(kAdvice, [&] {
    return group_.all_reduce(ranges_[index], ReduceOp::weighted_average,
                             {.name = name, .flags = flags_of(index), .weight = flags_.sum});
  }));
}

// Users may have dropped a gradient since it came, or assigned one by hand.
void Reducer::settle_touched(const Bucket& bucket) {
  for (const int parameter : bucket.parameters) {
    if (flat_.slots().take_in(parameter)) touch(parameter);
    if (!flat_.slots().is_live(parameter)) touched_[static_cast<std::size_t>(parameter)] = false;
  }
}

void Reducer::prepare_untouched(const Bucket& bucket) {
  const at::NoGradGuard off;
  for (const int parameter : bucket.parameters) {
    if (is_touched(parameter)) continue;
    const auto& gradient = flat_.parameters()[static_cast<std::size_t>(parameter)].gradient;
    const bool live = flat_.slots().is_live(parameter);
    if (live) kept_.emplace_back(parameter, gradient.clone());
    // Who brings no samples has no weight: not for an old gradient either.
    if (!live || flags_.sum == 0) gradient.zero_();
  }
}

// What is known of all parameters travels with the last bucket.
CallFlags Reducer::flags_of(std::size_t index) const {
  auto flags = flags_;
  if (index != last_) return flags;
  for (int i = 0; i < static_cast<int>(touched_.size()); ++i) {
    if (is_touched(i) && flat_.slots().non_finite(i)) flags.any |= StepFlags::kNonFinite;
    if (!is_touched(i) && trains(i) && !flags.absent) flags.any |= StepFlags::kUnused;
  }
  return flags;
}

std::vector<bool> Reducer::find_used(const GroupFlags& all) const {
  std::vector<bool> used(touched_.size());
  if (all.num_absent == group_.size()) return used;
  if (!has(all, StepFlags::kUnused)) {
    for (int i = 0; i < static_cast<int>(used.size()); ++i) {
      used[static_cast<std::size_t>(i)] = trains(i);
    }
    return used;
  }
  auto map = at::zeros({static_cast<std::int64_t>(used.size())}, at::kByte);
  auto* touched = map.mutable_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < used.size(); ++i) touched[i] = touched_[i] ? 1 : 0;
  group_.all_reduce(map, ReduceOp::max, {.name = "used parameters"}).wait();
  for (std::size_t i = 0; i < used.size(); ++i) used[i] = touched[i] != 0;
  return used;
}

}  // namespace lockstep
