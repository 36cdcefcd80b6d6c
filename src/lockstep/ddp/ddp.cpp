#include "lockstep/ddp/ddp.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/ddp/backward_watch.h"
#include "lockstep/ddp/bucket_size.h"
#include "lockstep/ddp/buffer_sync.h"
#include "lockstep/ddp/reducer.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

// A backward is watched from its first gradient to its end: only then is it certain which gradients
// did not come.
struct Ddp::State final : GradientListener, BackwardWatch::Listener {
  State(torch::nn::Module& the_module, const ProcessGroup& the_group, const DdpOptions& the_options)
      : module(the_module), group(the_group), options(the_options), flat(the_module, the_group) {
    flat.slots().listen(this);
    prepare();
  }

  void gradient_comes(int index, bool joins) override;
  void gradient_came(int index, bool defined) override;
  void ended() override;
  void failed() noexcept override { give_up(); }

  void prepare();
  void expect_idle(const char* verb) const;
  void expect_unspoiled();
  void expect_joinable(int index) const;
  void expect_unchanged(int index) const;
  void enter_backward();
  void give_up() noexcept;
  void take_in_all();
  void begin_reduction(bool with_batch);
  void start_rest();
  void finish_reduction();
  void replan();
  void trace_reduction() const;
  [[nodiscard]] int num_parameters() const { return static_cast<int>(marks.size()); }
  [[nodiscard]] std::int64_t weight(int batches_in_all) const;

  template <typename Action>
  void or_give_up(Action action) {
    try {
      action();
    } catch (...) {
      give_up();
      throw;
    }
  }
  [[nodiscard]] bool is_weighted() const {
    return options.normalize == Normalize::by_count || options.accumulate > 1;
  }

  torch::nn::Module& module;
  ProcessGroup group;
  DdpOptions options;
  FlatParameters flat;
  std::size_t bucket_bytes = 0;
  std::optional<Reducer> reducer;
  ReplicaCheck check;
  bool planned_by_arrival = false;
  std::vector<std::optional<std::uint64_t>> marks;  // of values, when no_sync() left a gradient

  // Since the last reduction.
  int micro_steps = 0;
  int batches = 0;  // micro-steps that had one
  std::int64_t samples = 0;
  bool counted = false;  // for the coming backward

  bool spoiled = false;  // gradients may be of part of a step: they must be zeroed first

  // Of the backward that runs.
  int paused = 0;        // NoSync scopes
  bool reduces = false;  // it ends with a reduction
  BackwardWatch watch{*this};

  // Of the last reduction.
  JoinedRiders joined;
  StepRecord record;
  std::vector<int> non_finite;
};

namespace {

// Changes when an optimizer steps: LibTorch's own leave version counters alone, so a few lines of
// memory are looked at, spread over the parameter.
std::uint64_t mark_of(const at::Tensor& parameter) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kLines = 8;
  const std::span bytes(static_cast<const std::byte*>(parameter.const_data_ptr()),
                        parameter.nbytes());
  const auto stride = std::max(kLine, bytes.size() / kLines);
  std::uint64_t mark = parameter._version();
  for (std::size_t at = 0; at < bytes.size(); at += stride) {
    mark = mark * 31 + digest(bytes.subspan(at, std::min(kLine, bytes.size() - at)));
  }
  return mark;
}

void expect_valid(const DdpOptions& options) {
  if (options.accumulate < 1) {
    throw UsageError(
        fmt::format("DdpOptions::accumulate is {}; it is the number of backwards that "
                    "are averaged together, 1 or more",
                    options.accumulate));
  }
}

}  // namespace

// Everything that a new model or group needs, before any gradient comes.
void Ddp::State::prepare() {
  for (int i = 0; i < flat.num_segments(); ++i) {
    auto values = flat.values(i);
    if (values.is_complex()) values = at::view_as_real(values);
    group.broadcast(values, 0, {.name = "parameters"}).wait();
  }
  if (options.buffers != BufferSync::never) broadcast_buffers(module, group, 0);
  bucket_bytes = options.bucket_bytes;
  if (bucket_bytes == kAutotune) {
    std::size_t total = 0;
    for (int i = 0; i < flat.num_segments(); ++i) total += flat.gradients(i).nbytes();
    bucket_bytes = measure_bucket_bytes(group, total);
  }
  spoiled = spoiled || (reducer && reducer->any_touched());
  reducer.emplace(flat, group, plan_buckets(flat.layout(), bucket_bytes));
  planned_by_arrival = false;
  check = {};
  marks.assign(flat.parameters().size(), std::nullopt);
  micro_steps = 0;
  batches = 0;
  samples = 0;
  counted = false;
  joined = {};
}

void Ddp::State::expect_idle(const char* verb) const {
  if (!watch.is_running() && !reducer->is_begun()) return;
  throw UsageError(
      fmt::format("{} was called in the middle of a backward or a reduction; call it "
                  "between steps",
                  verb));
}

void Ddp::State::expect_unspoiled() {
  if (!spoiled) return;
  for (int i = 0; i < num_parameters(); ++i) {
    const auto& parameter = flat.parameters()[static_cast<std::size_t>(i)];
    if (!flat.slots().is_live(i) || squared_norm(parameter.gradient) == 0) continue;
    samples = 0;
    counted = false;
    throw UsageError(
        fmt::format("the gradient of {} is left from a step that ended by an exception or in "
                    "another group: call zero_grad() before the next backward",
                    parameter.name));
  }
  spoiled = false;
}

// Sums are divided by samples, so that an average of earlier must not be among them.
void Ddp::State::expect_joinable(int index) const {
  if (!is_weighted() || reducer->is_touched(index)) return;
  const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
  if (!flat.slots().is_live(index) || squared_norm(parameter.gradient) == 0) return;
  throw UsageError(fmt::format(
      "the gradient of {} still holds the average of the last step: call zero_grad() between "
      "steps, and run all but the last backward of a step under no_sync()",
      parameter.name));
}

void Ddp::State::expect_unchanged(int index) const {
  const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
  const auto& mark = marks[static_cast<std::size_t>(index)];
  if (!mark || *mark == mark_of(parameter.tensor)) return;
  throw UsageError(fmt::format(
      "parameter {} was changed after a backward under no_sync() whose gradients were not averaged "
      "yet: the replicas differ now. Step only after a backward outside no_sync()",
      parameter.name));
}

void Ddp::State::gradient_comes(int index, bool joins) {
  if (!watch.is_running()) enter_backward();
  watch.attend();
  if (joins) expect_joinable(index);
  if (reducer->is_touched(index)) expect_unchanged(index);
}

void Ddp::State::gradient_came(int index, bool defined) {
  if (!watch.is_running()) enter_backward();
  watch.attend();
  if (defined) {
    auto& mark = marks[static_cast<std::size_t>(index)];
    mark.reset();
    if (!reduces) mark = mark_of(flat.parameters()[static_cast<std::size_t>(index)].tensor);
    reducer->touch(index);
  }
  if (reduces) reducer->ready(index);
}

void Ddp::State::enter_backward() {
  if (reducer->is_begun()) {
    throw UsageError("backward() was called between start() and wait() of a reduction");
  }
  if (options.normalize == Normalize::by_count && !counted) {
    throw UsageError(
        "gradients are normalised by count, but nobody said before backward() how many samples the "
        "loss is a sum of: call ddp.count(n)");
  }
  expect_unspoiled();
  reduces = paused == 0 && micro_steps + 1 >= options.accumulate;
  if (reduces) begin_reduction(/*with_batch=*/true);
}

void Ddp::State::ended() {
  ++micro_steps;
  ++batches;
  counted = false;
  if (!reduces) return;
  start_rest();
  finish_reduction();
}

// Whatever came of this step is of no use.
void Ddp::State::give_up() noexcept {
  micro_steps = 0;
  batches = 0;
  samples = 0;
  counted = false;
  joined = {};
  spoiled = true;
  std::fill(marks.begin(), marks.end(), std::nullopt);
  reducer->abandon();
}

std::int64_t Ddp::State::weight(int batches_in_all) const {
  if (options.normalize == Normalize::by_count) return samples;
  return options.accumulate > 1 ? batches_in_all : std::min(batches_in_all, 1);
}

// Gradients made by hand are a batch.
void Ddp::State::take_in_all() {
  bool any = false;
  for (int i = 0; i < num_parameters(); ++i) {
    if (!flat.slots().take_in(i) || reducer->is_touched(i)) continue;
    any = true;
    reducer->touch(i);
  }
  if (any && batches == 0) batches = 1;
}

void Ddp::State::begin_reduction(bool with_batch) {
  const int batches_in_all = batches + (with_batch ? 1 : 0);
  reducer->begin({.samples = weight(batches_in_all),
                  .digest = check.digest(),
                  .sitting_out = batches_in_all == 0});
}

void Ddp::State::start_rest() {
  bool all_came = true;
  for (int i = 0; i < num_parameters(); ++i) {
    if (reducer->is_touched(i)) {
      expect_unchanged(i);
    } else if (flat.parameters()[static_cast<std::size_t>(i)].tensor.requires_grad()) {
      all_came = false;
    }
  }
  // Parameters without a gradient may have left: the module may have others in their place.
  if (!all_came) flat.expect_in_place();
  reducer->start_rest();
}

void Ddp::State::finish_reduction() {
  joined = reducer->finish();
  std::fill(marks.begin(), marks.end(), std::nullopt);
  record = reducer->record();
  non_finite.assign(reducer->non_finite().begin(), reducer->non_finite().end());
  micro_steps = 0;
  batches = 0;
  samples = 0;
  counted = false;
  if (options.trace != nullptr) trace_reduction();
  if (!joined.digests_equal) check.report(flat, group);
  check.look(flat);
  if (joined.first_present < 0) return;
  if (options.buffers == BufferSync::each_step) {
    broadcast_buffers(module, group, joined.first_present);
  }
  if (!planned_by_arrival) replan();
}

// Once, after the first reduction: buckets in the order in which gradients really come.
void Ddp::State::replan() {
  planned_by_arrival = true;
  const auto count = static_cast<std::int64_t>(flat.parameters().size());
  auto order = at::full({count}, -1, at::kInt);
  auto* at = order.mutable_data_ptr<int>();
  std::copy(reducer->arrival().begin(), reducer->arrival().end(), at);
  group.broadcast(order, joined.first_present, {.name = "order of gradients"}).wait();
  const std::vector<int> arrival(at, std::find(at, at + count, -1));
  if (arrival.empty()) return;
  reducer.emplace(flat, group, plan_buckets(flat.layout(), bucket_bytes, arrival));
}

void Ddp::State::trace_reduction() const {
  for (std::size_t i = 0; i < record.buckets.size(); ++i) {
    const auto& bucket = record.buckets[i];
    if (bucket.done == StepClock::time_point{}) continue;
    options.trace->record(
        TraceSpan{fmt::format("bucket {} ready", i), bucket.ready, bucket.launched});
    options.trace->record(TraceSpan{fmt::format("bucket {} reduced ({} bytes)", i, bucket.bytes),
                                    bucket.launched, bucket.done});
  }
  const auto now = StepClock::now();
  options.trace->record(TraceSpan{"exposed communication", now - record.exposed, now});
}

Ddp::NoSync::NoSync(Ddp& ddp) : ddp_(ddp) { ++ddp_.state_->paused; }
Ddp::NoSync::~NoSync() { --ddp_.state_->paused; }

void Ddp::Sync::wait() {
  auto& state = *ddp_.state_;
  if (!state.reducer->is_begun()) return;
  state.or_give_up([&] { state.finish_reduction(); });
}

Ddp::Ddp(torch::nn::Module& module, const ProcessGroup& group, const DdpOptions& options) {
  expect_valid(options);
  state_ = std::make_unique<State>(module, group, options);
}

Ddp::~Ddp() {
  auto& state = *state_;
  state.flat.slots().listen(nullptr);
  if (std::uncaught_exceptions() > 0) return;
  const Log log({.rank = state.group.global_rank(state.group.rank())});
  if (state.reducer->any_touched()) {
    log.warning(
        "gradients of a backward under no_sync() were never averaged: the last backward of a step "
        "runs outside no_sync()");
  }
  if (const auto names = state.flat.strays(); !names.empty()) {
    log.warning(fmt::format(
        "parameters left library memory and were not averaged since: {}; move or load them before "
        "the Ddp is made, or call adopt() on all ranks",
        fmt::join(names, ", ")));
  }
}

void Ddp::count(std::int64_t samples) {
  if (state_->options.normalize != Normalize::by_count) {
    throw UsageError("ddp.count() has a meaning only with DdpOptions{.normalize = by_count}");
  }
  if (samples < 0) throw UsageError(fmt::format("a loss is not a sum of {} samples", samples));
  state_->expect_idle("count()");
  state_->samples += samples;
  state_->counted = true;
}

void Ddp::sit_out() {
  state_->expect_idle("sit_out()");
  if (state_->counted) {
    throw UsageError(
        "sit_out() is for a rank without a batch, but ddp.count() has counted one: call either");
  }
  state_->expect_unspoiled();
  ++state_->micro_steps;
  if (state_->paused > 0 || state_->micro_steps < state_->options.accumulate) return;
  state_->or_give_up([this] {
    state_->begin_reduction(/*with_batch=*/false);
    state_->start_rest();
    state_->finish_reduction();
  });
}

bool Ddp::step_due() const noexcept {
  return state_->micro_steps == 0 && state_->joined.samples > 0;
}
bool Ddp::non_finite() const noexcept { return state_->joined.non_finite; }

std::vector<std::string> Ddp::non_finite_parameters() const {
  std::vector<std::string> names;
  for (const int i : state_->non_finite) {
    names.push_back(state_->flat.parameters()[static_cast<std::size_t>(i)].name);
  }
  return names;
}

Ddp::Sync Ddp::start() {
  state_->expect_idle("start()");
  state_->expect_unspoiled();
  state_->or_give_up([this] {
    state_->take_in_all();
    state_->begin_reduction(/*with_batch=*/false);
    state_->start_rest();
  });
  return Sync(*this);
}

void Ddp::sync_buffers(int root) { broadcast_buffers(state_->module, state_->group, root); }

void Ddp::adopt() {
  state_->expect_idle("adopt()");
  state_->flat.adopt();
  state_->flat.slots().listen(state_.get());
  state_->prepare();
}

void Ddp::rebind(const ProcessGroup& group) {
  if (state_->watch.is_running())
    throw UsageError("rebind() was called in the middle of a backward");
  state_->group = group;
  state_->spoiled = true;  // the new ranks may have other gradients
  state_->flat.rebind(group);
  state_->flat.slots().listen(state_.get());
  state_->prepare();
}

FlatParameters& Ddp::flat() noexcept { return state_->flat; }
const BucketPlan& Ddp::plan() const noexcept { return state_->reducer->plan(); }
const StepRecord& Ddp::record() const noexcept { return state_->record; }

}  // namespace lockstep
