#include "lockstep/ddp/ddp.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/ddp/bucket_size.h"
#include "lockstep/ddp/buffer_sync.h"
#include "lockstep/ddp/reducer.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

namespace autograd = torch::autograd;

// A backward is watched from its first gradient to the end of its outermost graph: only then is it
// certain which gradients did not come. Graphs may be nested (a backward inside a backward), and a
// callback always belongs to the innermost one that runs.
struct Ddp::State final : GradientListener, std::enable_shared_from_this<State> {
  State(torch::nn::Module& the_module, const ProcessGroup& the_group, const DdpOptions& the_options)
      : module(the_module), group(the_group), options(the_options), flat(the_module, the_group) {
    flat.slots().listen(this);
    prepare();
  }

  void gradient_joins(int index) override;
  void gradient_came(int index, bool defined) override;

  void prepare();
  void take_gradient(int index, bool defined);
  void expect_idle(const char* verb) const;
  void enter_backward();
  void watch_end();
  void end_of_graph();
  void begin_reduction(bool with_batch);
  void start_rest();
  void finish_reduction();
  void replan();
  void trace_reduction() const;
  [[nodiscard]] std::int64_t weight(int batches_in_all) const;
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
  std::vector<std::uint32_t> versions;  // of touched parameters, when they were

  // Since the last reduction.
  int micro_steps = 0;
  int batches = 0;  // micro-steps that had one
  std::int64_t samples = 0;
  bool counted = false;  // for the coming backward

  // Of the backward that runs.
  int paused = 0;  // NoSync scopes
  bool in_backward = false;
  bool reduces = false;   // it ends with a reduction
  int watched_task = -1;  // the graph that has the callback
  std::vector<std::weak_ptr<autograd::Node>> hooked;

  // Of the last reduction.
  JoinedRiders joined;
  StepRecord record;
};

namespace {

// Runs in the graph around a nested one, and so can ask for a callback at that one's end.
template <typename State>
class WatchOuterGraph final : public autograd::FunctionPreHook {
 public:
  explicit WatchOuterGraph(std::weak_ptr<State> state) : state_(std::move(state)) {}
  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    if (const auto state = state_.lock(); state && state->in_backward) state->watch_end();
    return gradients;
  }

 private:
  std::weak_ptr<State> state_;
};

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
    group.broadcast(values, 0, {.name = "parameters"}).wait();
  }
  if (options.buffers != BufferSync::never) broadcast_buffers(module, group, 0);
  bucket_bytes = options.bucket_bytes;
  if (bucket_bytes == kAutotune) {
    std::size_t total = 0;
    for (int i = 0; i < flat.num_segments(); ++i) total += flat.gradients(i).nbytes();
    bucket_bytes = measure_bucket_bytes(group, total);
  }
  reducer.emplace(flat, group, plan_buckets(flat.layout(), bucket_bytes));
  planned_by_arrival = false;
  check = {};
  versions.assign(flat.parameters().size(), 0);
  micro_steps = 0;
  batches = 0;
  samples = 0;
  in_backward = false;
}

void Ddp::State::expect_idle(const char* verb) const {
  if (!in_backward && !reducer->is_begun()) return;
  throw UsageError(
      fmt::format("{} was called in the middle of a backward or a reduction; call it "
                  "between steps",
                  verb));
}

// Sums are divided by samples, so that an average of earlier must not be among them.
void Ddp::State::gradient_joins(int index) {
  if (!is_weighted() || reducer->is_touched(index)) return;
  const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
  if (squared_norm(parameter.gradient) == 0) return;
  throw UsageError(fmt::format(
      "the gradient of {} still holds the average of the last step: call zero_grad() between "
      "steps, and run all but the last backward of a step under no_sync()",
      parameter.name));
}

void Ddp::State::gradient_came(int index, bool defined) {
  if (!in_backward) enter_backward();
  watch_end();
  try {
    take_gradient(index, defined);
  } catch (...) {
    in_backward = false;
    watched_task = -1;
    reducer->abandon();
    throw;
  }
}

void Ddp::State::take_gradient(int index, bool defined) {
  const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
  if (defined) {
    auto& version = versions[static_cast<std::size_t>(index)];
    if (reducer->is_touched(index) && version != parameter.tensor._version()) {
      throw UsageError(fmt::format(
          "parameter {} was changed after a backward under no_sync() whose gradients were not "
          "averaged yet: the replicas differ now. Step only after a backward outside no_sync()",
          parameter.name));
    }
    version = static_cast<std::uint32_t>(parameter.tensor._version());
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
  reduces = paused == 0 && micro_steps + 1 >= options.accumulate;
  if (reduces) begin_reduction(/*with_batch=*/true);
  in_backward = true;
}

void Ddp::State::watch_end() {
  const int task = autograd::get_current_graph_task_id();
  if (task == watched_task) return;
  watched_task = task;
  autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->end_of_graph();
  });
}

void Ddp::State::end_of_graph() {
  if (!in_backward) return;
  if (const auto outer = autograd::get_current_node()) {
    // The graph that ended was nested in the work of this node. What follows it runs in the outer
    // graph, where the next callback can be asked for even if no further gradient comes.
    std::erase_if(hooked, [](const auto& node) { return node.expired(); });
    for (const auto& edge : outer->next_edges()) {
      const auto known = [&](const auto& node) { return node.lock() == edge.function; };
      if (!edge.function || std::any_of(hooked.begin(), hooked.end(), known)) continue;
      edge.function->add_pre_hook(std::make_unique<WatchOuterGraph<State>>(weak_from_this()));
      hooked.push_back(edge.function);
    }
    return;
  }
  in_backward = false;
  watched_task = -1;
  counted = false;
  ++micro_steps;
  ++batches;
  if (!reduces) return;
  start_rest();
  finish_reduction();
}

std::int64_t Ddp::State::weight(int batches_in_all) const {
  if (options.normalize == Normalize::by_count) return samples;
  return options.accumulate > 1 ? batches_in_all : std::min(batches_in_all, 1);
}

void Ddp::State::begin_reduction(bool with_batch) {
  const int batches_in_all = batches + (with_batch ? 1 : 0);
  reducer->begin({.samples = weight(batches_in_all),
                  .digest = check.digest(),
                  .sitting_out = batches_in_all == 0});
}

// Parameters that got no gradient may have one from elsewhere, or may have left.
void Ddp::State::start_rest() {
  for (int i = 0; i < static_cast<int>(versions.size()); ++i) {
    if (reducer->is_touched(i)) continue;
    if (!flat.slots().is_in_place(i)) flat.expect_in_place();
    if (flat.slots().take_in(i)) reducer->touch(i);
  }
  reducer->start_rest();
}

void Ddp::State::finish_reduction() {
  joined = reducer->finish();
  record = reducer->record();
  micro_steps = 0;
  batches = 0;
  samples = 0;
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
  if (ddp_.state_->reducer->is_begun()) ddp_.state_->finish_reduction();
}

Ddp::Ddp(torch::nn::Module& module, const ProcessGroup& group, const DdpOptions& options) {
  expect_valid(options);
  state_ = std::make_shared<State>(module, group, options);
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
  ++state_->micro_steps;
  if (state_->paused > 0 || state_->micro_steps < state_->options.accumulate) return;
  state_->begin_reduction(/*with_batch=*/false);
  state_->start_rest();
  state_->finish_reduction();
}

bool Ddp::step_due() const noexcept { return state_->joined.samples > 0; }
bool Ddp::non_finite() const noexcept { return state_->joined.non_finite; }

std::vector<std::string> Ddp::non_finite_parameters() const {
  std::vector<std::string> names;
  const auto parameters = state_->flat.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (state_->flat.slots().non_finite(static_cast<int>(i))) names.push_back(parameters[i].name);
  }
  return names;
}

Ddp::Sync Ddp::start() {
  state_->expect_idle("start()");
  state_->begin_reduction(/*with_batch=*/false);
  state_->start_rest();
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
  state_->group = group;
  state_->flat.rebind(group);
  state_->flat.slots().listen(state_.get());
  state_->prepare();
}

FlatParameters& Ddp::flat() noexcept { return state_->flat; }
const BucketPlan& Ddp::plan() const noexcept { return state_->reducer->plan(); }
const StepRecord& Ddp::record() const noexcept { return state_->record; }

}  // namespace lockstep
